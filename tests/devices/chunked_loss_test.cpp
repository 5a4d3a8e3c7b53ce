// SPDX-License-Identifier: Apache-2.0
// The loss of a linear layer's scores by chunks on a device: the CPU's numbers, and nothing that the host waits for.
#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <vector>

#include "device_fixture.hpp"
#include "nn/linear_cross_entropy.hpp"

namespace accel::nn {
namespace chunked_loss_test {

constexpr int64_t kRows = 37, kFeatures = 24, kClasses = 300, kChunk = 10, kIgnored = -100;
constexpr double kTolerance = 1e-5;  // the CPU has kernels of its own

class ChunkedLoss : public tests::DeviceTest {
 protected:
  static int64_t waits() {
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.host_waits;
  }

  // The loss, and the gradients of input, weight and bias.
  static std::vector<at::Tensor> compute(c10::Device where, const std::string& reduction, double smoothing) {
    at::manual_seed(3);
    const auto number = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(where).requires_grad_(); };
    const at::Tensor input = number({kRows, kFeatures}), weight = number({kClasses, kFeatures}),
                     bias = number({kClasses});
    at::Tensor target = at::randint(kClasses, {kRows}, at::TensorOptions(at::kLong));
    target.slice(0, 0, kRows, 3).fill_(kIgnored);
    target = target.to(where);
    input.detach()[3].fill_(std::numeric_limits<float>::quiet_NaN());  // no part of anything
    const bool counts = where.type() != c10::kCPU && is_simulated();
    if (counts) tensor::synchronize(where);
    const int64_t before = counts ? waits() : 0;
    const at::Tensor losses =
        linear_cross_entropy(input, weight, target, bias, std::nullopt, reduction, kIgnored, smoothing, kChunk);
    losses.mul(2).sum().backward();
    EXPECT_EQ(counts ? waits() : 0, before);
    return {losses.detach().cpu(), input.grad().cpu(), weight.grad().cpu(), bias.grad().cpu()};
  }
};

TEST_F(ChunkedLoss, IsTheCpusWithoutAWait) {
  for (const char* reduction : {"mean", "sum", "none"}) {
    for (const double smoothing : {0.0, 0.2}) {
      SCOPED_TRACE(testing::Message() << reduction << ", smoothing " << smoothing);
      const auto found = compute(device(), reduction, smoothing), expected = compute(c10::kCPU, reduction, smoothing);
      for (size_t i = 0; i < expected.size(); i++) {
        const double largest = expected[i].abs().max().item<double>();
        EXPECT_LE((found[i] - expected[i]).abs().max().item<double>(), kTolerance * largest) << "tensor " << i;
      }
    }
  }
}

}  // namespace chunked_loss_test
}  // namespace accel::nn
