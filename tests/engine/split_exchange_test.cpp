// SPDX-License-Identifier: Apache-2.0
// What the ranks of a split model exchange in a step, and that what goes on meanwhile changes no bit.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/prepared_model.hpp"
#include "comm/record/flight_record.hpp"
#include "config/generated/choices/overlap.hpp"
#include "config/generated/choices/recompute.hpp"
#include "config/generated/settings/module/activation_checkpointing.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "mesh_ranks.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/module_walks.hpp"
#include "nn/recompute/activation_checkpointing.hpp"
#include "tensor/tree.hpp"
#include "tensor/tree_json.hpp"

namespace accel::parallel {
namespace split_exchange_test {

using tests::AcceleratorPtr;
using tests::MeshSizes;
using tests::on_mesh;

constexpr int64_t kRows = 4, kLength = 12, kVocabulary = 12, kWidth = 24, kBlocks = 2, kPositions = 16;

// Ranks that are threads share one random stream, so that weights are not drawn.
nn::ModulePtr with_known_weights(const nn::ModulePtr& model) {
  const at::NoGradGuard no_grad;
  double seed = 1;
  for (const auto& [name, parameter] : nn::named_parameters(*model)) {
    seed += 0.37;
    parameter.copy_(at::linspace(-3 * seed, 11 * seed, parameter.numel()).sin().mul(0.3).view(parameter.sizes()));
  }
  return model;
}

nn::ModulePtr gpt2() {
  return with_known_weights(nn::module_from_config(
      R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 12, "vocab_size": 12, "n_positions": 16,
      "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0, "tie_word_embeddings": false})"));
}

nn::ModulePtr llama() {
  return with_known_weights(nn::module_from_config(
      R"({"model_type": "llama", "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2,
      "num_attention_heads": 12, "vocab_size": 12, "num_key_value_heads": 12})"));
}

void run_backward(const AcceleratorPtr& accelerator, const nn::ModulePtr& model, int64_t number,
                  int64_t length = kLength) {
  const at::Tensor tokens =
      at::arange(kRows * length).mul(7 + number).add(number * number).remainder(kVocabulary).view({kRows, length});
  const at::Tensor logits = model->call(tokens);
  accelerator->backward().run(at::cross_entropy_loss(logits.flatten(0, 1), tokens.flatten()));
}

struct Exchanged {
  std::map<std::string, int> calls;
  double bytes = 0;  // that this rank received
};

Exchanged operator-(Exchanged after, const Exchanged& before) {
  for (const auto& [name, count] : before.calls)
    if ((after.calls[name] -= count) == 0) after.calls.erase(name);
  after.bytes -= before.bytes;
  return after;
}

Exchanged exchanged(const comm::Communicator& group) {
  Exchanged all;
  const auto operations =
      tree::from_json(group.flight_record()->to_json(), "the record").toGenericDict().at("operations").toList();
  const auto ranks = static_cast<double>(group.size());
  for (const c10::IValue& value : operations) {
    const auto operation = value.toGenericDict();
    const std::string name = operation.at("operation").toStringRef();
    const auto bytes = static_cast<double>(operation.at("bytes").toInt());
    all.calls[name]++;
    if (name == "all_reduce") all.bytes += 2 * bytes * (ranks - 1) / ranks;
    if (name == "reduce_scatter") all.bytes += bytes * (ranks - 1) / ranks;
    if (name == "all_gather") all.bytes += bytes * (ranks - 1);
  }
  return all;
}

PrepareModelSettings split_settings(bool sequence_parallel, bool regather) {
  PrepareModelSettings settings;
  settings.tensor_parallel.sequence_parallel = sequence_parallel;
  settings.tensor_parallel.regather_inputs = regather;
  return settings;
}

// What one backward with its forward exchanges, when all that is done once has been done.
Exchanged exchanged_in_step(const AcceleratorPtr& accelerator, const PrepareModelSettings& settings,
                            const std::string& axes, bool sync = true, const nn::ModulePtr& inner = gpt2()) {
  const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, settings);
  const auto& group = accelerator->state().groups().mesh()->group(axes);
  for (int step = 0; step < 2; step++) run_backward(accelerator, model, step);
  const auto prepared = std::dynamic_pointer_cast<accelerator::PreparedModel>(model);
  prepared->parallel()->set_gradient_sync(sync);
  const Exchanged before = exchanged(*group);
  run_backward(accelerator, model, 2);
  return exchanged(*group) - before;
}

// Norms, and the biases of row layers.
constexpr double kPartialGradients = 4.0 * kWidth * (6 * kBlocks + 2);

nn::ModulePtr gpt2_of(at::ScalarType dtype) {
  const nn::ModulePtr model = gpt2();
  model->to(dtype, std::nullopt);
  return model;
}

TEST(SplitExchange, TensorMovesWhatTheFormulaSays) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(ranks);
      on_mesh({1, 1, ranks}, [&](const AcceleratorPtr& accelerator) {
        const Exchanged step =
            exchanged_in_step(accelerator, split_settings(false, true), "tensor", true, gpt2_of(dtype));
        const double bytes = dtype == at::kFloat ? 4 : 2, others = (ranks - 1.0) / ranks, rows = kRows * kLength,
                     sum = bytes * rows * kWidth * others;
        EXPECT_EQ(step.calls, (std::map<std::string, int>{{"all_reduce", 4 * kBlocks + 2}, {"all_gather", 1}}));
        EXPECT_DOUBLE_EQ(step.bytes, kBlocks * 8 * sum + 4 * sum + bytes * rows * kVocabulary * others);
      });
    }
}

TEST(SplitExchange, SequencesMoveWhatTheFormulaSays) {
  for (const int ranks : {2, 3, 4})
    for (const bool regather : {true, false}) {
      SCOPED_TRACE(std::to_string(ranks) + (regather ? " with inputs again" : ""));
      on_mesh({1, 1, ranks}, [&](const AcceleratorPtr& accelerator) {
        const Exchanged step = exchanged_in_step(accelerator, split_settings(true, regather), "tensor");
        const double others = (ranks - 1.0) / ranks, rows = kRows * kLength, whole = 4 * rows * kWidth * others;
        const int again = regather ? 2 * kBlocks + 1 : 0;
        // The head gathers, and so does the backward of the embedding and that of positions, which are those of one
        // row.
        EXPECT_EQ(step.calls, (std::map<std::string, int>{{"all_reduce", 1},
                                                          {"all_gather", 4 * kBlocks + 1 + 1 + 2 + again},
                                                          {"reduce_scatter", 4 * kBlocks + 2}}));
        EXPECT_DOUBLE_EQ(step.bytes, (8 * kBlocks + 4 + again) * whole + whole / kRows +
                                         4 * rows * kVocabulary * others + 2 * others * kPartialGradients);
      });
    }
}

// Gradients of which each rank computes a term are exchanged with those that all replicas average, and not before.
TEST(SplitExchange, TermsAreSummedOnceAStep) {
  const auto summed = [](const MeshSizes& sizes, const std::string& axes, bool sync) {
    int calls = -1;
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
      const Exchanged step = exchanged_in_step(accelerator, split_settings(true, true), axes, sync);
      const auto found = step.calls.find("all_reduce");
      if (accelerator->state().process_index() == 0) calls = found == step.calls.end() ? 0 : found->second;
    });
    return calls;
  };
  EXPECT_EQ(summed({1, 1, 2}, "tensor", true), 1);
  EXPECT_EQ(summed({1, 1, 2}, "tensor", false), 0);
  EXPECT_EQ(summed({2, 1, 2}, "replicate,shard,context,tensor", true), 1);
  EXPECT_EQ(summed({2, 1, 2}, "replicate,shard,context,tensor", false), 0);
  EXPECT_EQ(summed({2, 1, 2}, "tensor", true), 0);
}

// Of a model that is split, and of one whose parts are sharded.
TEST(SplitExchange, ClippingIsOneCollective) {
  for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, MeshSizes{1, 2, 2}})
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
      PrepareModelSettings settings = split_settings(true, true);
      settings.fsdp.enabled = sizes.shards > 1;
      const nn::ModulePtr model = accelerator->preparation().prepare_model(gpt2(), settings);
      comm::Mesh& mesh = *accelerator->state().groups().mesh();
      const auto calls = [&] {
        std::set<std::shared_ptr<comm::Communicator>> groups;  // with one shard two of them are the same
        for (const char* const axes : {"tensor", "shard,context", "shard,context,tensor"})
          groups.insert(mesh.group(axes));
        int calls = 0;
        for (const auto& group : groups)
          for (const auto& [name, count] : exchanged(*group).calls) calls += count;
        return calls;
      };
      run_backward(accelerator, model, 1);
      accelerator->clipping().clip_gradients_by_norm(model, 0.5, 2);  // which makes a group
      run_backward(accelerator, model, 2);
      const int before = calls();
      accelerator->clipping().clip_gradients_by_norm(model, 0.5, 2);
      EXPECT_EQ(calls() - before, 1);
    });
}

std::vector<at::Tensor> gradients_of(const AcceleratorPtr& accelerator, nn::ModulePtr (*make)(),
                                     PrepareModelSettings settings, Overlap overlap, int64_t chunks,
                                     int64_t length = kLength) {
  settings.tensor_parallel.overlap = overlap;
  settings.tensor_parallel.overlap_chunks = chunks;
  const nn::ModulePtr inner = make();
  const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, settings);
  run_backward(accelerator, model, 1, length);
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : nn::named_parameters(*inner)) gradients.push_back(parameter.grad().clone());
  accelerator->free_memory();
  return gradients;
}

TEST(SplitExchange, OverlapChangesNoBit) {
  for (const auto make : {gpt2, llama})
    for (const bool sequence_parallel : {false, true})
      for (const int ranks : {2, 3})
        on_mesh({1, 1, ranks}, [&](const AcceleratorPtr& accelerator) {
          const PrepareModelSettings settings = split_settings(sequence_parallel, true);
          const auto expected = gradients_of(accelerator, make, settings, Overlap::kNo, 0);
          for (const int64_t chunks : {0, 3}) {
            const auto found = gradients_of(accelerator, make, settings, Overlap::kYes, chunks);
            ASSERT_EQ(found.size(), expected.size());
            for (size_t i = 0; i < found.size(); i++)
              EXPECT_TRUE(at::equal(found[i], expected[i])) << i << " with " << chunks << " chunks";
          }
          const auto kept = gradients_of(accelerator, make, split_settings(sequence_parallel, false), Overlap::kYes, 0);
          for (size_t i = 0; i < kept.size(); i++) EXPECT_TRUE(at::equal(kept[i], expected[i])) << i;
        });
}

nn::ModulePtr recomputed_gpt2(Recompute recompute) {
  const nn::ModulePtr model = gpt2();
  ActivationCheckpointingSettings settings;
  settings.recompute = recompute;
  settings.class_names = std::string("GPT2Block");
  nn::checkpoint_activations(*model, settings);
  return model;
}

// The sums of a forward are computed again, or kept.
TEST(SplitExchange, RecomputationMovesWhatTheFormulaSays) {
  for (const Recompute recompute : {Recompute::kAll, Recompute::kKeepMatmuls})
    on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
      const Exchanged step =
          exchanged_in_step(accelerator, split_settings(false, true), "tensor", true, recomputed_gpt2(recompute));
      const int again = recompute == Recompute::kAll ? 2 * kBlocks : 0;
      EXPECT_EQ(step.calls, (std::map<std::string, int>{{"all_reduce", 4 * kBlocks + 2 + again}, {"all_gather", 1}}));
    });
}

// Layers that are computed again enter their region again, and gather what they have read.
TEST(SplitExchange, RecomputationChangesNoBit) {
  for (const bool sequence_parallel : {false, true})
    for (const bool regather : {false, true})
      on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
        const PrepareModelSettings settings = split_settings(sequence_parallel, regather);
        const auto expected = gradients_of(accelerator, gpt2, settings, Overlap::kNo, 0);
        for (const Overlap overlap : {Overlap::kNo, Overlap::kYes}) {
          const auto found = gradients_of(
              accelerator, [] { return recomputed_gpt2(Recompute::kAll); }, settings, overlap, 0);
          ASSERT_EQ(found.size(), expected.size());
          for (size_t i = 0; i < found.size(); i++) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
        }
      });
}

// Products are cut although nobody says so, and exchanged in shared memory.
TEST(SplitExchange, OverlapChangesNoBitOfLargeProducts) {
  const auto wide = [] {
    return with_known_weights(nn::module_from_config(
        R"({"model_type": "gpt2", "n_embd": 96, "n_layer": 1, "n_head": 2, "vocab_size": 12, "n_positions": 384,
        "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})"));
  };
  constexpr int64_t kLong = 384;
  for (const bool sequence_parallel : {false, true})
    on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
      const PrepareModelSettings settings = split_settings(sequence_parallel, true);
      const auto expected = gradients_of(accelerator, wide, settings, Overlap::kNo, 0, kLong);
      const auto found = gradients_of(accelerator, wide, settings, Overlap::kYes, 0, kLong);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); i++) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
    });
}

}  // namespace split_exchange_test
}  // namespace accel::parallel
