// SPDX-License-Identifier: Apache-2.0
// A model that is trained on a device has the bits of one that is trained on the CPU.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "simulated_device_fixture.hpp"

namespace simulated_device::tests {
namespace training_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;
constexpr auto kDevice = c10::DeviceType::PrivateUse1;

class SimulatedTraining : public SimulatedDeviceTest {
 protected:
  static Tensors on(c10::Device device, const Tensors& tensors) {
    Tensors moved;
    for (const Tensor& tensor : tensors) moved.push_back(tensor.to(device, tensor.scalar_type(), false, true));
    return moved;
  }
  static void expect_equal(const Tensors& on_device, const Tensors& expected) {
    for (size_t index = 0; index < expected.size(); ++index) {
      EXPECT_EQ(on_device[index].device(), device(1));
      EXPECT_TRUE(on_device[index].cpu().equal(expected[index])) << "tensor " << index;
    }
  }
  // Runs the same on the CPU and on a device.
  template <typename Run>
  static void expect_same(const Tensors& inputs, Run&& run) {
    const Tensors expected = run(on(at::kCPU, inputs));
    expect_equal(run(on(device(1), inputs)), expected);
  }
};

Tensors gradients_of(const Tensor& loss, const Tensors& parameters) {
  loss.backward();
  Tensors gradients;
  for (const Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

// Linear, GELU, layer norm, linear, cross entropy and an optimizer. The first two tensors are the batch. What autocast
// does on the device is written out for the CPU, whose autocast has other rules.
Tensors train(Tensors tensors, bool fused, at::ScalarType lower = at::kFloat) {
  const Tensor batch = tensors[0], classes = tensors[1];
  const auto device = batch.device();
  const bool on_device = device.type() == kDevice;
  const auto cast = [&](const Tensor& tensor, at::ScalarType dtype) { return on_device ? tensor : tensor.to(dtype); };
  Tensors parameters(tensors.begin() + 2, tensors.end()), means, squares, steps, none;
  for (Tensor& parameter : parameters) {
    parameter.requires_grad_(true);
    means.push_back(at::zeros_like(parameter));
    squares.push_back(at::zeros_like(parameter));
    steps.push_back(at::zeros({}, device));
  }
  Tensors results;
  for (int step = 0; step < 4; ++step) {
    at::autocast::set_autocast_enabled(kDevice, lower != at::kFloat && on_device);
    at::autocast::set_autocast_dtype(kDevice, lower);
    Tensor hidden = at::gelu(at::linear(cast(batch, lower), cast(parameters[0], lower), cast(parameters[1], lower)));
    hidden = at::layer_norm(cast(hidden, at::kFloat), {hidden.size(1)}, parameters[2], parameters[3]);
    const Tensor logits = at::linear(cast(hidden, lower), cast(parameters[4], lower));
    const Tensor scores = at::log_softmax(logits, 1, lower);  // as cross entropy calls it
    const Tensor loss = at::nll_loss(cast(scores, at::kFloat), classes);
    at::autocast::set_autocast_enabled(kDevice, false);
    at::autocast::clear_cache();
    EXPECT_EQ(logits.scalar_type(), lower);
    const Tensors gradients = gradients_of(loss, parameters);
    const at::NoGradGuard no_grad;
    results.push_back(loss.detach());
    results.push_back(gradients[0].clone());
    if (fused) {
      at::_foreach_add_(steps, 1);
      at::_fused_adamw_(parameters, gradients, means, squares, none, steps, 1e-2, 0.9, 0.999, 0.01, 1e-8, false, false);
    } else {
      at::_foreach_mul_(parameters, 1 - 1e-4);
      at::_foreach_add_(parameters, gradients, -1e-2);
    }
    for (const Tensor& parameter : parameters) parameter.mutable_grad() = Tensor();
  }
  results.insert(results.end(), parameters.begin(), parameters.end());
  return results;
}

Tensors batch_and_parameters() {
  return {at::randn({32, 16}), at::randint(0, 4, {32}, at::kLong),
          at::randn({64, 16}), at::randn({64}),
          at::ones({64}),      at::zeros({64}),
          at::randn({4, 64})};
}

TEST_F(SimulatedTraining, FusedOptimizer) {
  expect_same(batch_and_parameters(), [](Tensors tensors) { return train(tensors, true); });
}

TEST_F(SimulatedTraining, OptimizerOfManyTensors) {
  expect_same(batch_and_parameters(), [](Tensors tensors) { return train(tensors, false); });
}

TEST_F(SimulatedTraining, WithRandomDelaysOfTheStreams) {
  configure([](auto& settings) { settings.seed = 3; });
  expect_same(batch_and_parameters(), [](Tensors tensors) { return train(tensors, true); });
}

TEST_F(SimulatedTraining, AutocastInHalfPrecisions) {
  expect_same(batch_and_parameters(), [](Tensors tensors) { return train(tensors, true, at::kBFloat16); });
  expect_same(batch_and_parameters(), [](Tensors tensors) { return train(tensors, true, at::kHalf); });
}

TEST_F(SimulatedTraining, Convolution) {
  expect_same({at::randn({2, 3, 8, 8}), at::randn({6, 3, 3, 3}), at::randn({6})}, [](Tensors tensors) {
    for (Tensor& tensor : tensors) tensor.requires_grad_(true);
    const Tensor result = at::conv2d(tensors[0], tensors[1], tensors[2], {2, 2}, {1, 1});
    Tensors results = gradients_of(result.square().sum(), tensors);
    results.push_back(result.detach());
    return results;
  });
}

TEST_F(SimulatedTraining, EmbeddingAndDropoutAndIndices) {
  expect_same({at::randn({10, 8}), at::randint(0, 10, {4, 3}, at::kLong)}, [](Tensors tensors) {
    tensors[0].requires_grad_(true);
    at::Generator generator = at::globalContext().defaultGenerator(tensors[0].device());
    generator.set_current_seed(4);
    const Tensor rows = at::dropout(at::embedding(tensors[0], tensors[1]), 0.1, true);
    const Tensor picked = at::index(rows, {tensors[1].remainder(4)});
    Tensors results = gradients_of(picked.square().sum().add(rows.sum()), {tensors[0]});
    results.push_back(rows.detach());
    return results;
  });
}

TEST_F(SimulatedTraining, AttentionIsCloseToTheCpus) {
  const Tensor inputs = at::randn({3, 2, 4, 10, 8});
  const auto attention = [](const Tensor& of) {
    return at::scaled_dot_product_attention(of[0], of[1], of[2], std::nullopt, 0, true);
  };
  EXPECT_TRUE(attention(inputs.to(device(1))).cpu().allclose(attention(inputs), 1e-5, 1e-6));
}

TEST_F(SimulatedTraining, LossScale) {
  expect_same({at::full({4}, 8.f), at::full({3}, INFINITY)}, [](Tensors tensors) {
    const auto options = tensors[0].options();
    Tensor found = at::zeros({1}, options), scale = at::full({1}, 4.f, options);
    Tensor growth = at::zeros({1}, options.dtype(at::kInt));
    at::_amp_foreach_non_finite_check_and_unscale_(tensors, found, scale.reciprocal());
    at::_amp_update_scale_(scale, growth, found, 2, 0.5, 10);
    return Tensors{tensors[0], found, scale};
  });
}

TEST_F(SimulatedTraining, ViewsWriteIntoTheirTensor) {
  expect_same({at::zeros({4, 6})}, [](Tensors tensors) {
    tensors[0].select(0, 1).fill_(1);
    tensors[0].t().slice(0, 0, 6, 2).add_(2);
    tensors[0].view({2, 12})[1].mul_(3);
    at::Tensor out = at::zeros({0}, tensors[0].options());
    at::sum_out(out, tensors[0], 1);
    return Tensors{tensors[0], tensors[0].unfold(1, 3, 2).contiguous(), out};
  });
}

}  // namespace training_test
}  // namespace simulated_device::tests
