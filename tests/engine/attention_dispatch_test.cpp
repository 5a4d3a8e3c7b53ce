// SPDX-License-Identifier: Apache-2.0
// Attention by our kernels: as exact as LibTorch's or more, in our calls only.
#include "kernels/attention/attention_dispatch.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <vector>

#include "kernels/attention/short_attention.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/matmul/emulated_matmul.hpp"
#include "kernels/matmul/microkernel.hpp"

namespace accel::kernels {
namespace attention_dispatch_test {

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

double mean_square_error(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& exact) {
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) sum += (found[i].to(at::kDouble) - exact[i]).square().mean().item<double>();
  return sum;
}

void expect_as_exact(const std::vector<at::Tensor>& routed, const std::vector<at::Tensor>& normal,
                     const std::vector<at::Tensor>& exact) {
  EXPECT_LE(mean_square_error(routed, exact), 1.1 * mean_square_error(normal, exact) + 1e-6) << routed[0].sizes();
  for (size_t i = 0; i < routed.size(); ++i) EXPECT_TRUE(at::allclose(routed[i], normal[i], 0.02, 0.02));
}

class AttentionDispatch : public testing::Test {
 protected:
  // Without what emulated_matmul_test.cpp tests, on processors without instructions for halves too.
  void SetUp() override {
    install_attention_dispatch();
    choose_emulation(EmulationChoice::kNone);
  }
  void TearDown() override { choose_emulation(EmulationChoice::kMeasured); }
};

TEST_F(AttentionDispatch, IsAsExactAsTheDefaultOrMore) {
  at::manual_seed(1);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t length : {1, 7, 32, 64, 128, 192, 300, 512, 513}) {
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
        expect_as_exact(routed, normal, exact);
        const bool is_routed = ShortAttention::is_faster(dtype, length);
        EXPECT_TRUE(is_routed || routed[0].equal(normal[0])) << "long sequences stay with LibTorch";
        EXPECT_TRUE(length < 64 || is_routed == !routed[1].equal(normal[1])) << length;
      }
    }
  }
}

TEST_F(AttentionDispatch, TakesMasksAndOtherNumbersOfKeys) {
  at::manual_seed(2);
  Attention problem = attention(2, 2, 24, 60, 16, true);
  problem.mask = at::randn({24, 60}).to(at::kBFloat16);
  const auto exact = problem.gradients(at::kDouble);
  const auto normal = problem.gradients(at::kBFloat16);
  const ComputeScope scope({true, false});
  expect_as_exact(problem.gradients(at::kBFloat16), normal, exact);
}

TEST_F(AttentionDispatch, OutputsAreAsExactAsTheDefaultsOrMore) {
  at::manual_seed(4);
  struct Sizes {
    int64_t batch, heads, queries, keys, size;
  };
  // Also more heads than are held at once, and other numbers of keys than of queries.
  for (const Sizes& sizes :
       {Sizes{2, 3, 1, 1, 8}, {1, 2, 7, 100, 20}, {2, 2, 100, 7, 64}, {3, 5, 128, 128, 32}, {4, 40, 96, 96, 16}}) {
    for (const bool is_causal : {false, true}) {
      for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
        const Attention problem = attention(sizes.batch, sizes.heads, sizes.queries, sizes.keys, sizes.size, true);
        const auto run = [&](at::ScalarType in) {
          return at::_scaled_dot_product_flash_attention_for_cpu(problem.inputs[0].to(in), problem.inputs[1].to(in),
                                                                 problem.inputs[2].to(in), 0.0, is_causal, std::nullopt,
                                                                 0.3);
        };
        const auto [exact, exact_sums] = run(at::kDouble);
        const auto [normal, normal_sums] = run(dtype);
        const ComputeScope scope({true, false});
        const auto [routed, sums] = run(dtype);
        EXPECT_EQ(routed.strides(), normal.strides());
        EXPECT_EQ(sums.strides(), normal_sums.strides());
        EXPECT_EQ(sums.scalar_type(), at::kFloat);
        expect_as_exact({routed}, {normal}, {exact});
        EXPECT_TRUE(at::allclose(sums, exact_sums.to(at::kFloat), 1e-4, 1e-4));
      }
    }
  }
}

// Strips, and what is left of them; slices of one projection; also with more keys than queries and fewer.
TEST_F(AttentionDispatch, Float32IsAsExactAsTheDefault) {
  at::manual_seed(6);
  struct Sizes {
    int64_t queries, keys, size;
  };
  for (const Sizes& sizes : {Sizes{1, 1, 8},
                             {7, 7, 20},
                             {32, 32, 64},
                             {45, 45, 64},
                             {128, 128, 64},
                             {300, 300, 16},
                             {20, 90, 33},
                             {90, 20, 32},
                             {1025, 1025, 8},
                             {3072, 40, 8},
                             {40, 3072, 8},
                             {3073, 40, 8}}) {
    for (const bool is_causal : {false, true}) {
      for (const bool heads_inside : {false, true}) {
        Attention problem = attention(2, 3, sizes.queries, sizes.keys, sizes.size, heads_inside);
        problem.is_causal = is_causal;
        const auto exact = problem.gradients(at::kDouble), normal = problem.gradients(at::kFloat);
        const ComputeScope scope({true, false});
        const auto found = problem.gradients(at::kFloat);
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_EQ(found[i].sizes(), normal[i].sizes());
          const double error = (found[i].to(at::kDouble) - exact[i]).abs().max().item<double>();
          const double default_error = (normal[i].to(at::kDouble) - exact[i]).abs().max().item<double>();
          EXPECT_LE(error, 2 * default_error + 1e-5)
              << sizes.queries << " " << sizes.keys << " " << sizes.size << " " << i;
        }
      }
    }
  }
}

TEST_F(AttentionDispatch, Float32OutputsAreThoseOfTheDefault) {
  at::manual_seed(7);
  for (const int64_t length : {1, 33, 128, 500}) {
    for (const bool is_causal : {false, true}) {
      const at::Tensor projected = at::randn({3, length, 3, 2, 24});
      const at::Tensor parts = projected.permute({2, 0, 3, 1, 4});
      const auto run = [&] {
        return at::_scaled_dot_product_flash_attention_for_cpu(parts[0], parts[1], parts[2], 0.0, is_causal,
                                                               std::nullopt, 0.3);
      };
      const auto [normal, normal_sums] = run();
      const ComputeScope scope({true, false});
      const auto [found, sums] = run();
      EXPECT_EQ(found.strides(), normal.strides());
      EXPECT_EQ(sums.strides(), normal_sums.strides());
      EXPECT_TRUE(at::allclose(found, normal, 1e-4, 1e-5)) << length;
      EXPECT_TRUE(at::allclose(sums, normal_sums, 1e-4, 1e-5)) << length;
    }
  }
}

// Heads are the same whatever thread computes them.
TEST_F(AttentionDispatch, Float32HasEqualBitsForAnyNumberOfThreads) {
  at::manual_seed(8);
  Attention problem = attention(2, 4, 100, 100, 32, true);
  const ComputeScope scope({true, false});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = problem.gradients(at::kFloat);
  at::set_num_threads(3);
  const auto three = problem.gradients(at::kFloat);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i]));
}

TEST_F(AttentionDispatch, CarriesNanAndInfinity) {
  Attention problem = attention(1, 1, 40, 40, 16, false);
  problem.inputs[0][0][0][3][2] = std::numeric_limits<float>::quiet_NaN();
  problem.inputs[2][0][0][7][1] = std::numeric_limits<float>::infinity();
  const auto run = [&] {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(problem.inputs[0], problem.inputs[1],
                                                                       problem.inputs[2], 0.0, true));
  };
  const at::Tensor normal = run();
  const ComputeScope scope({true, false});
  const at::Tensor routed = run();
  EXPECT_TRUE(routed.isnan().equal(normal.isnan()));
  EXPECT_TRUE(routed.isinf().equal(normal.isinf()));
}

TEST_F(AttentionDispatch, WrongSizesHaveTheErrorsOfTheDefault) {
  const auto message = [](bool routed) {
    const ComputeScope scope({routed, false});
    const at::Tensor query = at::ones({1, 2, 8, 16}, at::kBFloat16), key = at::ones({1, 3, 8, 16}, at::kBFloat16);
    try {
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, key.narrow(3, 0, 8), 0.0, false);
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  EXPECT_NE(message(true), "");
  EXPECT_EQ(message(true), message(false));
}

TEST_F(AttentionDispatch, EqualBitsFromRunToRun) {
  at::manual_seed(5);
  const Attention problem = attention(4, 8, 128, 128, 32, true);
  const ComputeScope scope({true, false});
  const auto first = problem.gradients(at::kBFloat16), second = problem.gradients(at::kBFloat16);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i]));
}

TEST_F(AttentionDispatch, ActsInsideOurCallsOnly) {
  at::manual_seed(3);
  const Attention problem = attention(2, 2, 100, 100, 32, false);
  const auto normal = problem.gradients(at::kBFloat16);
  {
    const ComputeScope scope({true, false});
    EXPECT_FALSE(problem.gradients(at::kBFloat16)[1].equal(normal[1]));
  }
  EXPECT_TRUE(problem.gradients(at::kBFloat16)[1].equal(normal[1]));
  const auto normal_float = problem.gradients(at::kFloat);
  if (microkernel() == nullptr) return;
  const ComputeScope scope({true, false});
  EXPECT_FALSE(problem.gradients(at::kFloat)[1].equal(normal_float[1]));
  at::globalContext().setFloat32MatmulPrecision("high");
  const auto less_exact = problem.gradients(at::kFloat);
  at::globalContext().setFloat32MatmulPrecision("highest");
  EXPECT_TRUE(less_exact[1].equal(normal_float[1])) << "less than float32 is left to LibTorch";
}

}  // namespace attention_dispatch_test
}  // namespace accel::kernels
