// SPDX-License-Identifier: Apache-2.0
// Whole values of sharded parameters outside of forwards and backwards.
#include "accelerator/parameters/gathered_parameters.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "accelerator_ranks.hpp"
#include "expect_error.hpp"
#include "fsdp_fixture.hpp"
#include "nn/module_walks.hpp"

namespace accel::accelerator {
namespace gathered_parameters_test {

using parallel::fsdp_fixture::by_blocks;
using parallel::fsdp_fixture::make_model;
using parallel::fsdp_fixture::rows_of_step;
using tests::AcceleratorPtr;

struct Prepared {
  AcceleratorPtr accelerator;
  std::shared_ptr<nn::CallbackModule> inner;
  nn::ModulePtr model;
};

void on_three_ranks(const std::function<void(const Prepared&)>& body, const FsdpSettings& settings = by_blocks()) {
  tests::run_accelerators(3, {}, [&](const AcceleratorPtr& accelerator) {
    Prepared prepared{accelerator, make_model(), nullptr};
    PrepareModelSettings preparation;
    preparation.fsdp = settings;
    prepared.model = accelerator->preparation().prepare_model(prepared.inner, preparation);
    body(prepared);
  });
}

TEST(GatheredParameters, AreWholeInsideAndTakeTheChangesOfOneRank) {
  on_three_ranks([](const Prepared& prepared) {
    const at::NoGradGuard no_grad;
    const int rank = prepared.accelerator->state().process_index();
    const at::Tensor weight = nn::find_tensor(*prepared.inner, "block1.weight"),
                     last = nn::find_tensor(*prepared.inner, "last");
    const at::Tensor expected = nn::find_tensor(*make_model(), "block1.weight");
    {
      GatheredParameters gathered(prepared.accelerator, {weight, last}, 1);
      EXPECT_TRUE(at::equal(weight, expected));
      EXPECT_EQ(last.sizes(), (std::vector<int64_t>{2, 7}));
      weight.fill_(10 + rank);
      gathered.finish();
    }
    EXPECT_EQ(weight.sizes(), (std::vector<int64_t>{rank == 2 ? 1 : 3, 7}));
    EXPECT_TRUE(weight.eq(11).all().item<bool>());
    EXPECT_EQ(last.size(0), rank == 2 ? 0 : 1);
  });
}

TEST(GatheredParameters, AForwardUsesTheChanges) {
  on_three_ranks([](const Prepared& prepared) {
    const at::NoGradGuard no_grad;
    const auto reference = make_model();
    const auto change = [](const at::Tensor& tensor) { tensor.mul_(0.25).add_(0.1); };
    prepared.model->call(rows_of_step(0));  // copies of the shards exist
    const at::Tensor weight = nn::find_tensor(*prepared.inner, "block2.weight");
    GatheredParameters gathered(prepared.accelerator, {weight}, 0);
    change(weight);
    gathered.finish();
    change(nn::find_tensor(*reference, "block2.weight"));
    const at::Tensor actual = prepared.model->call(rows_of_step(0));
    EXPECT_TRUE(at::allclose(actual, reference->call(nn::Inputs{rows_of_step(0)}).toTensor()));
  });
}

TEST(GatheredParameters, DropChangesWithoutAModifier) {
  on_three_ranks([](const Prepared& prepared) {
    const at::NoGradGuard no_grad;
    const at::Tensor weight = nn::find_tensor(*prepared.inner, "first"), before = weight.clone();
    {
      GatheredParameters gathered(prepared.accelerator, {weight}, std::nullopt);
      weight.zero_();
      gathered.finish();
    }
    EXPECT_TRUE(at::equal(weight, before));
    { const GatheredParameters given_up(prepared.accelerator, {weight}, 0); }
    EXPECT_TRUE(at::equal(weight, before));
  });
}

TEST(GatheredParameters, OfModelsThatAreNotShardedGetTheValuesOfOneRank) {
  FsdpSettings none;
  none.enabled = false;
  on_three_ranks(
      [](const Prepared& prepared) {
        const at::NoGradGuard no_grad;
        const at::Tensor weight = nn::find_tensor(*prepared.inner, "first");
        GatheredParameters gathered(prepared.accelerator, {weight}, 2);
        weight.fill_(prepared.accelerator->state().process_index());
        gathered.finish();
        EXPECT_TRUE(weight.eq(2).all().item<bool>());
      },
      none);
}

TEST(GatheredParameters, WrongUseIsAnError) {
  on_three_ranks([](const Prepared& prepared) {
    const at::Tensor weight = nn::find_tensor(*prepared.inner, "first");
    tests::expect_error(Status::kInvalidArgument, "modifier_rank is 3; expected 0 to 2",
                        [&] { const GatheredParameters gathered(prepared.accelerator, {weight}, 3); });
    GatheredParameters gathered(prepared.accelerator, {weight}, std::nullopt);
    tests::expect_error(Status::kInvalidState, "parameter 'first' is gathered already",
                        [&] { const GatheredParameters again(prepared.accelerator, {weight}, std::nullopt); });
    tests::expect_error(Status::kInvalidState, "parameters of the model are gathered",
                        [&] { prepared.model->call(rows_of_step(0)); });
    const at::Tensor other = nn::find_tensor(*prepared.inner, "last");
    const std::vector<int64_t> shard = other.sizes().vec();
    tests::expect_error(Status::kInvalidState, "parameter 'first' is gathered already", [&] {
      const GatheredParameters again(prepared.accelerator, {other, weight}, std::nullopt);
    });
    EXPECT_EQ(other.sizes(), shard);  // as if the call had not been made
    gathered.finish();
    prepared.model->call(rows_of_step(0));
  });
}

TEST(GatheredParameters, MayBeNamedTwice) {
  on_three_ranks([](const Prepared& prepared) {
    const at::NoGradGuard no_grad;
    const at::Tensor weight = nn::find_tensor(*prepared.inner, "first");
    GatheredParameters gathered(prepared.accelerator, {weight, weight}, 0);
    weight.fill_(5);
    gathered.finish();
    EXPECT_TRUE(weight.eq(5).all().item<bool>());
    prepared.model->call(rows_of_step(0));
  });
}

}  // namespace gathered_parameters_test
}  // namespace accel::accelerator
