// SPDX-License-Identifier: Apache-2.0
// Parallel operators: values and gradients are those of one process.
#include "parallel/regions/parallel_operators.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "expect_error.hpp"
#include "nn/layers/projection.hpp"
#include "parallel/regions/split_product.hpp"
#include "parallel/regions/split_region.hpp"
#include "rank_threads.hpp"

namespace accel::parallel {
namespace parallel_operators_test {

at::Tensor numbers(std::vector<int64_t> sizes, double seed) {
  const int64_t count = c10::multiply_integers(sizes);
  return at::linspace(-2.0 * seed, 3.0, count, at::kDouble).sin().view(sizes);
}

at::Tensor own(const at::Tensor& whole, int64_t dim, const RankGroup& group) {
  const Share share = share_of(whole.size(dim), group->rank(), group->size());
  return whole.narrow(dim, share.begin, share.size).clone();
}

at::Tensor leaf(const at::Tensor& values) { return values.clone().set_requires_grad(true); }

bool near(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 1e-12, 1e-12);
}

void on_ranks(const std::function<void(const RankGroup&)>& body) {
  for (const int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(size);
    tests::run_ranks(size, body);
  }
}

TEST(ParallelOperators, SharesCoverADimensionOnce) {
  for (int64_t whole = 0; whole < 12; whole++)
    for (int64_t ranks = 1; ranks < 6; ranks++) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < ranks; rank++) {
        const Share share = share_of(whole, rank, ranks);
        EXPECT_EQ(share.begin, next);
        EXPECT_LE(whole / ranks, share.size);
        EXPECT_GE(whole / ranks + 1, share.size);
        next += share.size;
      }
      EXPECT_EQ(next, whole);
    }
}

// Two linear layers: the first is split by its outputs, the second by its inputs. 7 features are uneven on 2, 3, 4
// ranks.
struct TwoLayers {
  at::Tensor x = leaf(numbers({2, 6, 5}, 0.7));
  at::Tensor up = leaf(numbers({7, 5}, 0.9)), down = leaf(numbers({3, 7}, 1.3)), bias = leaf(numbers({3}, 0.4));
  at::Tensor target = numbers({2, 6, 3}, 0.2);

  TwoLayers() {
    output = at::linear(at::tanh(at::linear(x, up)), down, bias);
    (output - target).square().sum().backward();
  }
  at::Tensor output;
};

TEST(ParallelOperators, ColumnAndRowLayersAreTheWholeOnes) {
  on_ranks([](const RankGroup& group) {
    const TwoLayers whole;
    const at::Tensor x = leaf(whole.x.detach()), bias = leaf(whole.bias.detach());
    const at::Tensor up = leaf(own(whole.up.detach(), 0, group)), down = leaf(own(whole.down.detach(), 1, group));
    const at::Tensor hidden = at::tanh(at::linear(parallel_copy(x, group), up));
    const at::Tensor output = parallel_reduce(at::linear(hidden, down), group) + bias;
    (output - whole.target).square().sum().backward();
    EXPECT_TRUE(near(output, whole.output));
    EXPECT_TRUE(near(x.grad(), whole.x.grad()));
    EXPECT_TRUE(near(bias.grad(), whole.bias.grad()));
    EXPECT_TRUE(near(up.grad(), own(whole.up.grad(), 0, group)));
    EXPECT_TRUE(near(down.grad(), own(whole.down.grad(), 1, group)));
  });
}

// Outside of the layers each rank has a part of the sequence, so that the bias has a partial gradient.
TEST(ParallelOperators, SplitSequencesAreTheWholeOnes) {
  on_ranks([](const RankGroup& group) {
    const TwoLayers whole;
    const int64_t length = whole.x.size(1);
    const at::Tensor x = leaf(whole.x.detach()), bias = leaf(whole.bias.detach());
    const at::Tensor up = leaf(own(whole.up.detach(), 0, group)), down = leaf(own(whole.down.detach(), 1, group));
    const at::Tensor entered = parallel_scatter(x, 1, group);
    EXPECT_TRUE(near(entered, own(whole.x.detach(), 1, group)));
    const at::Tensor gathered = parallel_gather(entered, -2, GatheredGradient::kPartial, group, length);
    const at::Tensor hidden = at::tanh(at::linear(gathered, up));
    const at::Tensor part = parallel_reduce_scatter(at::linear(hidden, down), 1, group) + bias;
    const at::Tensor output = parallel_gather(part, 1, GatheredGradient::kReplicated, group, length);
    (output - whole.target).square().sum().backward();
    EXPECT_TRUE(near(output, whole.output));
    EXPECT_TRUE(near(x.grad(), whole.x.grad()));
    EXPECT_TRUE(near(up.grad(), own(whole.up.grad(), 0, group)));
    EXPECT_TRUE(near(down.grad(), own(whole.down.grad(), 1, group)));
    const at::Tensor bias_gradient = bias.grad().clone();
    if (group->size() > 1) group->all_reduce(bias_gradient, comm::ReduceOp::kSum);
    EXPECT_TRUE(near(bias_gradient, whole.bias.grad()));
  });
}

// From parts of the sequence to parts of the heads and back, as attention needs it.
TEST(ParallelOperators, AllToAllExchangesTheSplitDimension) {
  on_ranks([](const RankGroup& group) {
    for (const auto& [heads, length] : {std::pair<int64_t, int64_t>{12, 24}, {7, 11}}) {
      const at::Tensor whole = numbers({2, heads, length, 3}, 0.8), weight = numbers({2, heads, length, 3}, 1.7);
      const at::Tensor part = leaf(own(whole, 2, group));
      const at::Tensor exchanged = parallel_all_to_all(part, 1, 2, group, length);
      EXPECT_TRUE(near(exchanged, own(whole, 1, group)));
      const at::Tensor back = parallel_all_to_all(exchanged.square(), 2, 1, group, heads);
      EXPECT_TRUE(near(back, own(whole, 2, group).square()));
      (back * own(weight, 2, group)).sum().backward();
      EXPECT_TRUE(near(part.grad(), own(weight * whole * 2, 2, group)));
    }
  });
}

TEST(ParallelOperators, DerivativesOfDerivatives) {
  on_ranks([](const RankGroup& group) {
    const at::Tensor whole = numbers({3, 5}, 0.6);
    const at::Tensor part = leaf(own(whole, 1, group));
    const at::Tensor all = parallel_gather(part, 1, GatheredGradient::kReplicated, group, 5);
    const auto first = torch::autograd::grad({all.pow(3).sum()}, {part}, {}, std::nullopt, true);
    EXPECT_TRUE(near(first[0], own(whole.square() * 3, 1, group)));
    const auto second = torch::autograd::grad({first[0].sum()}, {part});
    EXPECT_TRUE(near(second[0], own(whole * 6, 1, group)));
  });
}

// A row layer has the gradient of its output as a whole, and its parts of those of its input and weight.
TEST(ParallelOperators, SecondDerivativesOfARowLayer) {
  const auto penalty = [](const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight) {
    const auto first = torch::autograd::grad({output.pow(3).sum()}, {input, weight}, {}, std::nullopt, true);
    return first[0].pow(2).sum() + first[1].pow(2).sum();
  };
  const at::Tensor whole_x = leaf(numbers({3, 7}, 0.4)), whole_weight = leaf(numbers({5, 7}, 0.9));
  const at::Tensor whole_bias = leaf(numbers({5}, 0.2));
  penalty(at::linear(whole_x, whole_weight, whole_bias), whole_x, whole_weight).backward();
  for (const int ranks : {1, 2, 3})
    tests::run_ranks(ranks, [&](const RankGroup& group) {
      const SplitRegion region(group, {});
      const at::Tensor x = leaf(own(whole_x.detach(), 1, group)), bias = leaf(whole_bias.detach());
      const at::Tensor weight = leaf(own(whole_weight.detach(), 1, group));
      const at::Tensor output = row_product(x, weight, bias, nn::Product{/*is_transposed=*/false}, region);
      parallel_reduce(penalty(output, x, weight), group).backward();
      EXPECT_TRUE(near(x.grad(), own(whole_x.grad(), 1, group)));
      EXPECT_TRUE(near(weight.grad(), own(whole_weight.grad(), 1, group)));
      EXPECT_TRUE(near(bias.grad(), whole_bias.grad()));
    });
}

TEST(ParallelOperators, NumbersWithoutGradientsAndEmptyParts) {
  on_ranks([](const RankGroup& group) {
    const at::Tensor whole = at::arange(2, at::kLong);  // fewer than ranks
    const at::Tensor part = own(whole, 0, group);
    const at::Tensor all = parallel_gather(part, 0, GatheredGradient::kReplicated, group, 2);
    EXPECT_TRUE(all.equal(whole));
    EXPECT_FALSE(all.requires_grad());
    EXPECT_TRUE(parallel_scatter(all, 0, group).equal(part));
  });
}

// A rank whose output has no gradient takes part with zeros.
TEST(ParallelOperators, GradientThatIsMissingIsZeros) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const at::Tensor x = leaf(at::ones({3}, at::kDouble));
    const at::Tensor copy = parallel_copy(x, group);
    (group->rank() == 0 ? copy * 2 : copy * 0).sum().backward();
    EXPECT_TRUE(near(x.grad(), at::ones({3}, at::kDouble) * 2));
  });
}

TEST(ParallelOperators, WrongArguments) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const at::Tensor x = at::ones({4, 3});
    tests::expect_error(Status::kInvalidArgument, "dim: 2 of a tensor with 2 dimensions; expected one from -2 to 1",
                        [&] { parallel_scatter(x, 2, group); });
    tests::expect_error(Status::kInvalidArgument, "two different ones", [&] { parallel_all_to_all(x, 1, -1, group); });
    tests::expect_error(Status::kShapeMismatch, "has 4 along dimension 0 of a tensor with 6; expected 3",
                        [&] { parallel_gather(x, 0, GatheredGradient::kPartial, group, 6); });
  });
}

}  // namespace parallel_operators_test
}  // namespace accel::parallel
