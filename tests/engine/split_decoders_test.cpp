// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism of decoders by their own plans: each trains as in one process, with all kinds of norms of heads,
// packed products and experts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expect_error.hpp"
#include "nn/module_walks.hpp"
#include "split_model_fixture.hpp"

namespace accel::parallel {
namespace split_decoders_test {

using namespace split_model_tests;

// A family with as many key heads, where it may have others than heads.
Case family(const std::string& type, int64_t key_heads, const std::string& more = "", bool sequence_parallel = false) {
  const std::string config = R"({"model_type": ")" + type + R"(", "vocab_size": 13, "hidden_size": 24,
      "intermediate_size": 31, "num_hidden_layers": 2, "num_attention_heads": 6, "pad_token_id": null,
      "query_pre_attn_scalar": 4, "head_dim": 4, "num_key_value_heads": )" +
                             std::to_string(key_heads) + more + "}";
  return {type + more, [config] { return from_config(config); }, "auto", kFloatTolerance, sequence_parallel};
}

void expect_trains_alike_split(const Case& test, const std::vector<MeshSizes>& meshes, bool splits_experts = false) {
  SCOPED_TRACE(test.name);
  PrepareModelSettings settings;
  settings.expert_parallel.tensor_parallel_experts = splits_experts;
  const Trained expected = train_alone(test, 6);
  for (const MeshSizes& sizes : meshes) {
    SCOPED_TRACE(text_of(sizes));
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, test, settings);
      for (size_t step = 0; step < expected.steps.size(); step++) {
        const auto [loss, norm] = training.step(static_cast<int64_t>(step));
        if (sizes.replicas * sizes.shards == 1) {
          EXPECT_NEAR(loss, expected.steps[step].first, test.tolerance);
        }
        EXPECT_NEAR(norm, expected.steps[step].second, test.tolerance);
      }
      expect_close(training.weights(), expected.weights, test.tolerance);
    });
  }
}

const std::vector<MeshSizes> kPairs = {{1, 1, 2}};

// Norms of the heads of a rank are whole, and each rank computes a term of their gradients.
TEST(SplitDecoders, NormsOfHeadsTrainAsInOneProcess) {
  for (const bool sequences : {false, true}) {
    expect_trains_alike_split(family("qwen3", 3, "", sequences), {{1, 1, 2}, {1, 1, 3}, {1, 2, 2}});
    expect_trains_alike_split(family("qwen3", 1, R"(, "attention_bias": true)", sequences), kPairs);
  }
  expect_trains_alike_split(family("gemma3_text", 2, R"(, "sliding_window": 2, "sliding_window_pattern": 2)"), kPairs);
  expect_trains_alike_split(family("gemma3_text", 1), kPairs);
}

TEST(SplitDecoders, PackedProductsTrainAsInOneProcess) {
  for (const bool sequences : {false, true}) {
    expect_trains_alike_split(family("phi3", 2, R"(, "sliding_window": 2)", sequences), kPairs);
    expect_trains_alike_split(family("phi3", 6, "", sequences), {{1, 1, 2}, {1, 1, 3}});
    expect_trains_alike_split(family("gpt_neox", 6, R"(, "rotary_pct": 0.5)", sequences), {{1, 1, 2}, {1, 1, 3}});
  }
  expect_trains_alike_split(family("phi3", 1), kPairs);                  // both ranks have the key head
  expect_trains_alike_split(family("phi3", 3), {{1, 1, 2}, {1, 2, 2}});  // ranks have different numbers of heads
}

TEST(SplitDecoders, NormsOfAllHeadsTrainAsInOneProcess) {
  for (const bool sequences : {false, true})
    expect_trains_alike_split(family("olmo2", 3, "", sequences), {{1, 1, 2}, {1, 2, 2}});
  expect_trains_alike_split(family("olmo2", 6, R"(, "attention_bias": true)"), kPairs);
}

TEST(SplitDecoders, ParallelBranchesTrainAsInOneProcess) {
  for (const bool sequences : {false, true}) {
    expect_trains_alike_split(family("phi", 3, R"(, "qk_layernorm": true)", sequences), kPairs);
    expect_trains_alike_split(
        family("stablelm", 3, R"(, "use_parallel_residual": true, "partial_rotary_factor": 0.5)", sequences), kPairs);
    expect_trains_alike_split(family("stablelm", 2, R"(, "partial_rotary_factor": 1)", sequences), kPairs);
  }
}

constexpr const char* kExperts =
    R"(, "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10,
       "shared_expert_intermediate_size": 14)";

TEST(SplitDecoders, ExpertsTrainAsInOneProcess) {
  for (const std::string type : {"mixtral", "qwen2_moe", "qwen3_moe"}) {
    for (const bool splits_experts : {false, true})
      expect_trains_alike_split(family(type, 3, kExperts), kPairs, splits_experts);
    expect_trains_alike_split(family(type, 3, kExperts, /*sequence_parallel=*/true), kPairs, /*splits_experts=*/true);
  }
  expect_trains_alike_split(family("qwen2_moe", 3, std::string(kExperts) + R"(, "mlp_only_layers": [0])"), kPairs);
}

// Ranks share the experts, and the layers beside them are whole.
TEST(SplitDecoders, SharedOutExpertsTrainAsInOneProcess) {
  for (const std::string type : {"mixtral", "qwen2_moe"})
    expect_trains_alike_split(family(type, 3, kExperts), {{1, 2, 1, 1, 2}});
}

TEST(SplitDecoders, RefuseWhatPlansCannotDo) {
  const auto refuse = [](const char* words, const Case& test) {
    on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
      tests::expect_error(Status::kUnsupported, words, [&] { Training(accelerator, test); });
    });
  };
  refuse("is of experts that are whole; expected tensor_parallel_experts 1", family("mixtral", 3, kExperts, true));
  refuse("which splits no sequences", family("gemma3_text", 3, "", true));
}

TEST(SplitDecoders, ARankHasItsPartsOfPackedProducts) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator, family("phi3", 2));
    const int64_t rank = accelerator->state().groups().mesh()->coordinate("tensor");
    const at::Tensor own = nn::find_tensor(*training.inner(), "model.layers.0.self_attn.qkv_proj.weight");
    const at::Tensor whole = nn::find_tensor(*family("phi3", 2).make(), "model.layers.0.self_attn.qkv_proj.weight");
    ASSERT_EQ(own.size(0), 20);  // 3 of 6 query heads, and one of 2 key heads
    EXPECT_TRUE(own.narrow(0, 0, 12).equal(whole.narrow(0, 12 * rank, 12)));
    EXPECT_TRUE(own.narrow(0, 12, 4).equal(whole.narrow(0, 24 + 4 * rank, 4)));
    EXPECT_TRUE(own.narrow(0, 16, 4).equal(whole.narrow(0, 32 + 4 * rank, 4)));
  });
}

}  // namespace split_decoders_test
}  // namespace accel::parallel
