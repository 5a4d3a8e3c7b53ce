// The backward of attention in half precision: as exact as LibTorch's or more, in our calls only.
#include "kernels/attention_routing.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "kernels/compute_policy.hpp"

namespace accel::kernels {
namespace {

struct Attention {
  std::vector<at::Tensor> inputs;  // query, key, value
  at::Tensor seed;
  std::optional<at::Tensor> mask;
  bool is_causal = false;

  std::vector<at::Tensor> gradients(at::ScalarType dtype) const {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.to(dtype).detach().requires_grad_());
    std::optional<at::Tensor> typed = mask;
    if (typed) typed = typed->to(dtype);
    const at::Tensor out = at::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], typed, 0.0, is_causal);
    return torch::autograd::grad({out}, leaves, {seed.to(dtype)});
  }
};

Attention attention(int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t size, bool heads_inside) {
  const auto part = [&](int64_t length) {
    // As models have them: [batch, length, heads, size], seen with the heads before the positions.
    if (heads_inside) return at::randn({batch, length, heads, size}).to(at::kBFloat16).transpose(1, 2);
    return at::randn({batch, heads, length, size}).to(at::kBFloat16);
  };
  return {{part(queries), part(keys), part(keys)}, part(queries), std::nullopt, false};
}

double error_of(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& exact) {
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i)
    largest = std::max(largest, (found[i].to(at::kDouble) - exact[i]).abs().max().item<double>());
  return largest;
}

class AttentionRouting : public testing::Test {
 protected:
  void SetUp() override { install_attention_routing(); }
};

TEST_F(AttentionRouting, IsAsExactAsTheDefaultOrMore) {
  at::manual_seed(1);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t length : {1, 7, 64, 128, 192, 193, 300}) {
      for (const bool is_causal : {false, true}) {
        Attention problem = attention(2, 3, length, length, 32, is_causal);
        problem.is_causal = is_causal;
        const auto exact = problem.gradients(at::kDouble);
        const auto normal = problem.gradients(dtype);
        const ComputeScope scope({true, false});
        const auto routed = problem.gradients(dtype);
        for (size_t i = 0; i < routed.size(); ++i) {
          EXPECT_EQ(routed[i].scalar_type(), dtype);
          EXPECT_EQ(routed[i].sizes(), normal[i].sizes());
        }
        EXPECT_LE(error_of(routed, exact), 1.05 * error_of(normal, exact) + 1e-3) << length;
        const bool is_routed = length <= 192;
        EXPECT_TRUE(is_routed || routed[0].equal(normal[0])) << "long sequences stay with LibTorch";
      }
    }
  }
}

TEST_F(AttentionRouting, TakesMasksAndOtherNumbersOfKeys) {
  at::manual_seed(2);
  Attention problem = attention(2, 2, 24, 60, 16, true);
  problem.mask = at::randn({24, 60}).to(at::kBFloat16);
  const auto exact = problem.gradients(at::kDouble);
  const auto normal = problem.gradients(at::kBFloat16);
  const ComputeScope scope({true, false});
  EXPECT_LE(error_of(problem.gradients(at::kBFloat16), exact), 1.05 * error_of(normal, exact) + 1e-3);
}

TEST_F(AttentionRouting, ActsInsideOurCallsOnly) {
  at::manual_seed(3);
  const Attention problem = attention(2, 2, 100, 100, 32, false);
  const auto normal = problem.gradients(at::kBFloat16);
  {
    const ComputeScope scope({true, false});
    EXPECT_FALSE(problem.gradients(at::kBFloat16)[1].equal(normal[1]));
  }
  EXPECT_TRUE(problem.gradients(at::kBFloat16)[1].equal(normal[1]));
  EXPECT_TRUE(problem.gradients(at::kFloat)[1].equal(problem.gradients(at::kFloat)[1]));
}

}  // namespace
}  // namespace accel::kernels
