// SPDX-License-Identifier: Apache-2.0
// Split sequences on ranks that are processes: one that dies in an exchange of attention, and random streams.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/collective_error.hpp"
#include "config/generated/choices/recompute.hpp"
#include "config/generated/settings/module/activation_checkpointing.hpp"
#include "json/json.hpp"
#include "nn/architectures/gpt2.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/recompute/activation_checkpointing.hpp"
#include "parallel/context/context_scope.hpp"
#include "rank_processes.hpp"
#include "tensor/autograd/loss.hpp"

namespace accel::parallel {
namespace context_processes_test {

using tests::AcceleratorPtr;
using tests::MeshSizes;
using tests::on_mesh_of_processes;

ContextParallelism split_of(const AcceleratorPtr& accelerator, ContextMethod method) {
  const auto order = method == ContextMethod::kUlysses ? SequenceOrder::kContiguous : SequenceOrder::kHeadAndTail;
  return {accelerator->state().groups().mesh()->group("context"), method, order};
}

constexpr auto kNamedWithin = std::chrono::seconds(10);  // on a busy machine; far below the deadline of a collective

// How the ranks of an attention are arranged. There may be several such groups beside each other.
struct Groups {
  int ranks, shards = 1;
  bool in_place = false;

  int victim() const { return (shards - 1) * ranks + 1; }  // its number in the job; 1 in its group
};

// The victim dies before its part of a forward, or of the backward after it.
void lose_a_rank(ContextMethod method, const Groups& groups, bool in_backward) {
  SCOPED_TRACE(std::to_string(static_cast<int>(method)) + (in_backward ? " backward" : " forward"));
  const MeshSizes sizes{1, groups.shards, 1, groups.ranks};
  const std::vector<int> ends = on_mesh_of_processes(sizes, [&](const AcceleratorPtr& accelerator) {
    const int rank = accelerator->state().process_index();
    ContextParallelism split = split_of(accelerator, method);
    if (groups.in_place) split.memory = std::make_shared<ExchangeMemory>(split.group);
    const at::Tensor x = at::linspace(-9, 20, 4 * 96 * 8, at::kFloat).sin().view({1, 4, 96, 8}).requires_grad_();
    const auto attend = [&] { return context_parallel_attention(x, x, x, true, std::nullopt, split).sum(); };
    attend().backward();
    at::Tensor out;
    if (in_backward) out = attend();
    if (rank == groups.victim()) raise(SIGKILL);
    const auto begun = std::chrono::steady_clock::now();
    const bool is_of_others = rank / groups.ranks != groups.victim() / groups.ranks;
    try {
      if (!in_backward) out = attend();
      out.backward();
      EXPECT_TRUE(is_of_others) << "no error";
    } catch (const comm::CollectiveError& error) {
      EXPECT_FALSE(is_of_others) << error.what();
      EXPECT_EQ(error.failure(), comm::CollectiveFailure::kPeerLost) << error.what();
      EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(groups.victim())), std::string::npos)
          << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kNamedWithin);
  });
  for (int rank = 0; rank < sizes.ranks(); rank++)
    EXPECT_EQ(ends[static_cast<size_t>(rank)], rank == groups.victim() ? SIGKILL : 0);
}

TEST(ContextProcesses, ALostRankIsNamedOnAllOthers) {
  for (const ContextMethod method : {ContextMethod::kAllGather, ContextMethod::kRing, ContextMethod::kUlysses})
    for (const int ranks : {2, 4})
      for (const bool in_backward : {false, true}) lose_a_rank(method, {ranks}, in_backward);
}

TEST(ContextProcesses, ARankWhoseBlocksAreReadInPlaceIsNamed) {
  for (const ContextMethod method : {ContextMethod::kAllGather, ContextMethod::kRing})
    for (const bool in_backward : {false, true}) lose_a_rank(method, {3, 1, true}, in_backward);
}

// By its number in the job, which is not that in its group.
TEST(ContextProcesses, ALostRankOfOneOfSeveralGroupsIsNamed) {
  for (const ContextMethod method : {ContextMethod::kRing, ContextMethod::kUlysses})
    lose_a_rank(method, {2, 2, method == ContextMethod::kRing}, true);
}

// The gradients of a step of a model with dropout, whose generators begin with the same seeds each time.
std::vector<at::Tensor> gradients(const AcceleratorPtr& accelerator, std::optional<Recompute> recompute) {
  accelerator->randomness().set_seed(5, /*device_specific=*/false);
  const nn::ModulePtr model = nn::build_gpt2(parse_json(
      R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 11, "n_positions": 512, "n_embd": 32, "n_layer": 2,
          "n_head": 4, "resid_pdrop": 0.3, "embd_pdrop": 0.3, "attn_pdrop": 0})",
      "gpt2"));
  if (recompute) {
    ActivationCheckpointingSettings settings;
    settings.recompute = *recompute;
    settings.class_names = std::string("GPT2Block");
    nn::checkpoint_activations(*model, settings);
  }
  accelerator->randomness().set_seed(7, /*device_specific=*/true);
  const at::Tensor tokens = at::arange(512, at::kLong).mul(7).remainder(11).view({1, 512}), labels = tokens.clone();
  at::Tensor loss;
  {
    const ContextScope scope(split_of(accelerator, ContextMethod::kRing), {{tokens, 1}, {labels, 1}});
    loss = tensor::cross_entropy(model->call(tokens), labels);
  }
  return torch::autograd::grad({loss}, model->parameters());
}

TEST(ContextProcesses, RecomputationDropsTheSame) {
  for (const int end : on_mesh_of_processes({1, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
         const auto expected = gradients(accelerator, std::nullopt), again = gradients(accelerator, std::nullopt);
         for (const Recompute recompute : {Recompute::kAll, Recompute::kKeepMatmuls}) {
           const auto found = gradients(accelerator, recompute);
           for (size_t i = 0; i < found.size(); i++) {
             EXPECT_TRUE(again[i].equal(expected[i])) << i;
             EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-5, 1e-6)) << i;
           }
         }
         accelerator->end_training();
       }))
    EXPECT_EQ(end, 0);
}

// Each rank drops the share that it shall, and other positions than the others.
TEST(ContextProcesses, RanksDropOtherPositions) {
  for (const int end : on_mesh_of_processes({1, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
         accelerator->randomness().set_seed(3, /*device_specific=*/true);
         const ContextParallelism split = split_of(accelerator, ContextMethod::kRing);
         const ContextScope scope(split, {});
         const at::Tensor kept = std::make_shared<nn::Dropout>(0.3)->call(at::ones({64, 256})).ne(0);
         EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.7, 0.02);
         const at::Tensor both = at::empty({2, 64, 256}, at::kByte);
         split.group->all_gather(kept.to(at::kByte), both);
         const double equal = both[0].eq(both[1]).to(at::kDouble).mean().item<double>();
         EXPECT_NEAR(equal, 0.7 * 0.7 + 0.3 * 0.3, 0.03);  // of independent ones
         accelerator->end_training();
       }))
    EXPECT_EQ(end, 0);
}

}  // namespace context_processes_test
}  // namespace accel::parallel
