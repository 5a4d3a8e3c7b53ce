// SPDX-License-Identifier: Apache-2.0
// Attention with fewer key heads than ranks: several ranks have the same key heads, and train them as one process does.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint_fixture.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/projection.hpp"
#include "split_model_fixture.hpp"

namespace accel::parallel {
namespace shared_key_heads_test {

using namespace split_model_tests;

constexpr int64_t kHeads = 12, kHeadSize = 2, kWidth = 20;

Case llama_case(int64_t key_heads, bool sequence_parallel = false) {
  return {"Llama with " + std::to_string(key_heads) + " key heads" + (sequence_parallel ? ", sequences" : ""),
          [key_heads] { return llama("", key_heads, kHeads); }, "auto", kFloatTolerance, sequence_parallel};
}

// Queries, keys and values are one product.
class PackedAttention : public nn::Module {
 public:
  explicit PackedAttention(int64_t key_heads)
      : Module("PackedAttention"),
        qkv_(std::make_shared<nn::Linear>(kWidth, (kHeads + 2 * key_heads) * kHeadSize, true)),
        out_(std::make_shared<nn::Linear>(kHeads * kHeadSize, kWidth, true)) {
    add_child("qkv", qkv_);
    add_child("out", out_);
  }

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override {
    const at::Tensor packed = qkv_->call(only_tensor(inputs)).unflatten(-1, {-1, kHeadSize}).transpose(1, 2);
    const int64_t heads = out_->in_features() / kHeadSize, key_heads = (packed.size(1) - heads) / 2;
    const auto repeated = [&](int64_t begin) {
      return packed.narrow(1, begin, key_heads).repeat_interleave(heads / key_heads, 1);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(packed.narrow(1, 0, heads), repeated(heads),
                                                              repeated(heads + key_heads), {}, 0.0, /*is_causal=*/true);
    return out_->call(mixed.transpose(1, 2).flatten(2));
  }

 private:
  std::shared_ptr<nn::Linear> qkv_, out_;
};

class AttentionOfKnownHeads final : public PackedAttention, public nn::AttentionHeads {
 public:
  explicit AttentionOfKnownHeads(int64_t key_heads)
      : PackedAttention(key_heads), AttentionHeads(kHeads, key_heads, kHeadSize) {}
};

// `knows_heads`: the attention says what its heads are, or else the plan does.
Case packed_case(int64_t key_heads, bool knows_heads = true) {
  const auto make = [key_heads, knows_heads] {
    const auto model = std::make_shared<nn::CallbackModule>("Packed");
    model->add_child("words", std::make_shared<nn::Embedding>(kVocabulary, kWidth));
    model->add_child("attention", knows_heads ? std::make_shared<AttentionOfKnownHeads>(key_heads)
                                              : std::make_shared<PackedAttention>(key_heads));
    model->add_child("head", std::make_shared<nn::Linear>(kWidth, kVocabulary, true));
    model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
      at::Tensor x = inputs[0].toTensor();
      for (const auto& [name, child] : self.children()) x = child->call(x);
      return x;
    });
    return with_known_weights(model);
  };
  const std::string sizes = std::to_string(kHeads * kHeadSize) + "," + std::to_string(key_heads * kHeadSize) + "," +
                            std::to_string(key_heads * kHeadSize);
  const std::string heads = knows_heads ? "" : "[" + std::to_string(kHeadSize) + "]";
  // Query heads of one key head stay together, unless there are fewer of them than ranks.
  const std::string rows = knows_heads ? "" : "[" + std::to_string(kHeads / key_heads * kHeadSize) + "]";
  return {"packed with " + std::to_string(key_heads) + " key heads" + heads, make,
          "words embedding_rowwise; attention.qkv packed_colwise(" + sizes + ")" + heads + "; attention.out rowwise" +
              (key_heads < 3 ? heads : rows) + "; head colwise_gather_output"};
}

TEST(SharedKeyHeads, TrainAsInOneProcess) {
  constexpr int kSteps = 6;
  for (const Case& test : {llama_case(1), packed_case(1)}) {
    const Trained expected = train_alone(test, kSteps);
    for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, {1, 1, 3}, {1, 1, 4}, {2, 1, 2}, {1, 2, 2}})
      expect_trains_as(expected, test, sizes);
  }
  for (const Case& test : {llama_case(2), packed_case(2)}) {
    const Trained expected = train_alone(test, kSteps);
    for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, {1, 1, 4}}) expect_trains_as(expected, test, sizes);
  }
  // Three ranks share four key heads unevenly, and two have the same one of a single one.
  const Trained of_plan = train_alone(packed_case(4), kSteps);
  for (const bool knows_heads : {true, false}) expect_trains_as(of_plan, packed_case(4, knows_heads), {1, 1, 3});
  expect_trains_as(train_alone(packed_case(1), kSteps), packed_case(1, /*knows_heads=*/false), {1, 1, 2});
  const Trained expected = train_alone(llama_case(1), kSteps);
  for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, {1, 1, 3}})
    expect_trains_as(expected, llama_case(1, /*sequence_parallel=*/true), sizes);
}

TEST(SharedKeyHeads, ARankStoresTheKeyHeadsOfItsQueries) {
  on_mesh({1, 1, 4}, [](const AcceleratorPtr& accelerator) {
    Training training(accelerator, llama_case(2));
    const nn::ModulePtr attention = training.inner()->find("model.layers.1.self_attn");
    const int64_t rank = accelerator->state().process_index();
    const auto box_of = [&](const char* name) { return attention->find(name)->placement(0)->boxes.front(); };
    EXPECT_EQ(box_of("q_proj").whole.offset, (std::vector<int64_t>{rank * 6, 0}));
    EXPECT_EQ(box_of("q_proj").whole.sizes, (std::vector<int64_t>{6, 24}));
    for (const char* const name : {"k_proj", "v_proj"}) {
      EXPECT_EQ(box_of(name).whole.offset, (std::vector<int64_t>{rank / 2 * kHeadSize, 0}));
      EXPECT_EQ(box_of(name).whole.sizes, (std::vector<int64_t>{kHeadSize, 24}));
      EXPECT_EQ(box_of(name).counts, rank % 2 == 0);
    }
  });
}

// Each element is in the files once, and comes back on other meshes.
TEST(SharedKeyHeads, CheckpointsHaveEachOnce) {
  for (const Case& test : {llama_case(2), packed_case(2)})
    for (const StateDictType type : {StateDictType::kFullStateDict, StateDictType::kShardedStateDict}) {
      SCOPED_TRACE(test.name);
      PrepareModelSettings settings;
      settings.fsdp.state_dict_type = type;
      const checkpoint::tests::Folder folder;
      std::map<std::string, at::Tensor> saved;
      on_mesh({1, 1, 4}, [&](const AcceleratorPtr& accelerator) {
        Training training(accelerator, test, settings);
        training.step(0);
        const auto weights = training.weights();
        if (accelerator->state().process_index() == 0) saved = weights;
        accelerator->checkpoints().save_state(folder / "s");
      });
      for (const MeshSizes& sizes : {MeshSizes{1, 1, 1}, {1, 1, 4}, {1, 2, 2}})
        on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
          Training training(accelerator, test, settings);
          accelerator->checkpoints().load_state(folder / "s");
          expect_close(training.weights(), saved, 0);
        });
    }
}

TEST(SharedKeyHeads, RanksMustShareThemEvenly) {
  const auto refuse = [](int parts, const std::string& message, const Case& test) {
    on_mesh({1, 1, parts}, [&](const AcceleratorPtr& accelerator) {
      tests::expect_error(Status::kInvalidArgument, message, [&] { Training(accelerator, test); });
    });
  };
  refuse(3, "is of an attention with 12 heads and 2 key heads to split over 3 ranks", llama_case(2));
  refuse(4, "is of an attention with 6 heads and 1 key heads to split over 4 ranks",
         {"", [] { return llama("", 1, 6); }, "auto"});
  refuse(3, "has 2 heads to split over 3 ranks", {"", [] { return llama("", 1, 2); }, "auto"});
}

}  // namespace shared_key_heads_test
}  // namespace accel::parallel
