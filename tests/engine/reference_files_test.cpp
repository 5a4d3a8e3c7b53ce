// SPDX-License-Identifier: Apache-2.0
// Configuration files of Accelerate.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "config/fsdp_settings.hpp"
#include "config/generated/choices/context_method.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/fp8/fp8.hpp"
#include "config/generated/settings/parallelism/context_parallel.hpp"
#include "config/generated/settings/parallelism/expert_parallel.hpp"
#include "config/generated/settings/parallelism/tensor_parallel.hpp"
#include "config/generated/settings/pipeline/pipeline.hpp"
#include "config/generated/settings/prepare/deepspeed.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "config/generated/settings/state/state.hpp"
#include "config/precedence.hpp"
#include "config/state_settings.hpp"
#include "expect_error.hpp"
#include "settings_fixture.hpp"

namespace accel {
namespace reference_files_test {

TEST(ReferenceFiles, AQuestionnairesFileOfShardingIsReadInFull) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file(
      "compute_environment: LOCAL_MACHINE\n"
      "debug: true\n"
      "distributed_type: FSDP\n"
      "downcast_bf16: 'no'\n"
      "enable_cpu_affinity: false\n"
      "dynamo_config: {}\n"
      "fsdp_config:\n"
      "  fsdp_activation_checkpointing: true\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_backward_prefetch: BACKWARD_POST\n"
      "  fsdp_offload_params: false\n"
      "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n"
      "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
      "  fsdp_transformer_layer_cls_to_wrap: [BertLayer, BertPooler]\n"
      "  fsdp_version: 1\n"
      "machine_rank: 0\n"
      "main_training_function: main\n"
      "mixed_precision: bf16\n"
      "num_machines: 1\n"
      "num_processes: 5\n"
      "tpu_env: [{a: b}]\n"
      "use_cpu: true\n");
  const StateSettings state = resolve_state_settings({});
  EXPECT_EQ(state.mixed_precision, Precision::kBf16);
  EXPECT_EQ(*state.num_processes, 1) << "how many processes there are is the launcher's part";
  EXPECT_TRUE(state.debug);
  EXPECT_TRUE(state.cpu.value);
  const FsdpSettings settings = resolve_fsdp_settings({});
  EXPECT_TRUE(*settings.enabled);
  EXPECT_EQ(settings.enabled.source, file.line(3));
  EXPECT_TRUE(settings.activation_checkpointing);
  EXPECT_EQ(settings.sharding_strategy, ShardingStrategy::kShardGradOp);
  EXPECT_EQ(settings.sharding_strategy.source, file.line(12));
  EXPECT_EQ(settings.backward_prefetch, BackwardPrefetch::kBackwardPost);
  EXPECT_EQ(settings.state_dict_type, StateDictType::kShardedStateDict);
  EXPECT_EQ(settings.transformer_cls_names_to_wrap.value, "BertLayer,BertPooler");
}

TEST(ReferenceFiles, SizesOfTheMeshAreThoseOfTheState) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file(
      "distributed_type: FSDP\n"
      "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}\n"
      "parallelism_config:\n"
      "  parallelism_config_dp_replicate_size: 4\n"
      "  parallelism_config_dp_shard_size: 2\n"
      "  parallelism_config_cp_comm_strategy: alltoall\n"
      "  parallelism_config_tp_size: 3\n");
  const StateSettings state = resolve_state_settings({});
  EXPECT_EQ(*state.data_parallel_replicate_size, 4);
  EXPECT_EQ(state.data_parallel_shard_size, 2);
  EXPECT_EQ(state.tensor_parallel_size, 3);
  const FsdpSettings settings = resolve_fsdp_settings({});
  EXPECT_EQ(settings.fsdp_version, 2);
  EXPECT_EQ(settings.reshard_after_forward.value, false);
}

TEST(ReferenceFiles, OldOnesHaveFp16) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file("distributed_type: MULTI_GPU\nfp16: true\n");
  EXPECT_EQ(resolve_state_settings({}).mixed_precision, Precision::kFp16);
}

TEST(ReferenceFiles, OfDeepSpeedTheyHaveItsSettings) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file(
      "distributed_type: DEEPSPEED\n"
      "deepspeed_config:\n"
      "  gradient_accumulation_steps: 5\n"
      "  gradient_clipping: 0.7\n"
      "  offload_optimizer_device: none\n"
      "  deepspeed_multinode_launcher: pdsh\n"
      "  zero3_init_flag: false\n"
      "  zero_stage: 3\n");
  EXPECT_EQ(resolve_state_settings({}).gradient_accumulation_steps, 5);
  DeepspeedSettings settings;
  resolve_settings(settings);
  EXPECT_TRUE(settings.enabled);
  EXPECT_EQ(settings.zero_stage, 3);
  EXPECT_EQ(settings.gradient_clipping, 0.7);
  EXPECT_FALSE(*resolve_fsdp_settings({}).enabled);
}

TEST(ReferenceFiles, SequencesAreSharedInOneOfTwoWays) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file(
      "parallelism_config:\n"
      "  parallelism_config_cp_size: 1\n"
      "  parallelism_config_sp_size: 3\n");
  StateSettings state = resolve_state_settings({});
  EXPECT_EQ(state.context_parallel_size, 3);
  EXPECT_EQ(default_context_method(state), ContextMethod::kUlysses);
  for (const char* const size : {"3", "2", "1"}) {  // the variable goes before the file
    setenv("PARALLELISM_CONFIG_SP_SIZE", size, 1);
    state = resolve_state_settings({});
    EXPECT_EQ(state.context_parallel_size, std::stoi(size));
    EXPECT_EQ(default_context_method(state), ContextMethod::kUlysses);
  }
}

TEST(ReferenceFiles, TheReferencesWordsNameMethods) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file("parallelism_config: {parallelism_config_cp_comm_strategy: alltoall}\n");
  const auto method = [] {
    ContextParallelSettings settings;
    resolve_settings(settings);
    return settings.method.value;
  };
  EXPECT_EQ(method(), ContextMethod::kRing);
  for (const auto& [word, expected] : {std::pair("allgather", ContextMethod::kAllGather),
                                       {"ALLTOALL", ContextMethod::kRing},
                                       {"ulysses", ContextMethod::kUlysses}}) {
    setenv("PARALLELISM_CONFIG_CP_COMM_STRATEGY", word, 1);
    EXPECT_EQ(method(), expected) << word;
  }
  setenv("PARALLELISM_CONFIG_CP_COMM_STRATEGY", "everywhere", 1);
  tests::expect_error(Status::kInvalidArgument, "method is 'everywhere' (from PARALLELISM_CONFIG_CP_COMM_STRATEGY)",
                      method);
}

TEST(ReferenceFiles, ContextParallelismIsAnotherWayThanTheVariables) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file("parallelism_config:\n  parallelism_config_cp_size: 2\n");
  EXPECT_EQ(default_context_method(resolve_state_settings({})), ContextMethod::kAllGather);
  setenv("PARALLELISM_CONFIG_SP_SIZE", "2", 1);
  tests::expect_error(Status::kInvalidArgument, "both split sequences", [] { resolve_state_settings({}); });
}

constexpr const char* kMegatron =
    "megatron_lm_config:\n"
    "  megatron_lm_tp_degree: 2\n"
    "  megatron_lm_sequence_parallelism: true\n"
    "  megatron_lm_pp_degree: 3\n"
    "  megatron_lm_num_micro_batches: 4\n"
    "  megatron_lm_use_distributed_optimizer: true\n"
    "  megatron_lm_optimizer_cpu_offload: true\n"
    "  megatron_lm_gradient_clipping: 1.0\n"
    "  megatron_lm_eod_mask_loss: false\n"
    "  megatron_lm_attention_softmax_in_fp32: true\n"
    "  megatron_lm_expert_tensor_parallel_size: 1\n";

// Layers of experts are split with the others, or whole.
TEST(ReferenceFiles, MegatronsExpertsAreSplitWithTheLayers) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file(
      "distributed_type: MEGATRON_LM\n"
      "megatron_lm_config:\n"
      "  megatron_lm_tp_degree: 2\n"
      "  megatron_lm_expert_model_parallel_size: 4\n"
      "  megatron_lm_expert_tensor_parallel_size: 2\n");
  const StateSettings state = resolve_state_settings({});
  EXPECT_EQ(state.tensor_parallel_size, 2);
  EXPECT_EQ(state.expert_parallel_size, 4);
  ExpertParallelSettings experts;
  resolve_settings(experts);
  EXPECT_TRUE(experts.tensor_parallel_experts);
  EXPECT_EQ(experts.tensor_parallel_experts.source, file.line(5));
}

// The section counts by the type, wherever that stands.
TEST(ReferenceFiles, MegatronsSettingsAreOptions) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file(std::string(kMegatron) + "distributed_type: megatron_lm\n");
  const LoggedText logged;
  const StateSettings state = resolve_state_settings({});
  EXPECT_EQ(state.tensor_parallel_size, 2);
  EXPECT_EQ(state.tensor_parallel_size.source, file.line(2));
  EXPECT_EQ(state.pipeline_parallel_size, 3);
  EXPECT_EQ(state.context_parallel_size, 1);
  const FsdpSettings fsdp = resolve_fsdp_settings({});
  EXPECT_TRUE(*fsdp.enabled);
  EXPECT_EQ(fsdp.sharding_strategy, ShardingStrategy::kShardGradOp);
  EXPECT_TRUE(fsdp.offload_optimizer);
  PipelineSettings pipeline;
  resolve_settings(pipeline);
  EXPECT_EQ(pipeline.micro_batches, 4);
  TensorParallelSettings layers;
  resolve_settings(layers);
  EXPECT_TRUE(layers.sequence_parallel);
  EXPECT_NE(logged.lines().find(file.line(8) + ": megatron_lm_gradient_clipping has no effect: a program clips by"),
            std::string::npos);
  const size_t said = logged.lines().find("has no effect");
  EXPECT_EQ(logged.lines().find("has no effect", said + 1), std::string::npos) << logged.lines();
}

TEST(ReferenceFiles, MegatronsShardsAreWholeOrOfTheOptimizer) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file(
      "distributed_type: MEGATRON_LM\n"
      "megatron_lm_config:\n"
      "  megatron_lm_use_custom_fsdp: true\n"
      "  megatron_lm_use_distributed_optimizer: true\n"
      "  megatron_lm_overlap_cpu_optimizer_d2h_h2d: true\n");
  const LoggedText logged;
  EXPECT_EQ(resolve_fsdp_settings({}).sharding_strategy, ShardingStrategy::kFullShard);
  EXPECT_NE(logged.lines().find("megatron_lm_overlap_cpu_optimizer_d2h_h2d has no effect"), std::string::npos);
}

TEST(ReferenceFiles, MegatronsSettingsOfAnotherTypeAreNotRead) {
  const SettingsEnvironment environment;
  const ConfigurationFileOfTest file(std::string("distributed_type: MULTI_CPU\n") + kMegatron);
  const LoggedText logged;
  EXPECT_EQ(resolve_state_settings({}).tensor_parallel_size, 1);
  EXPECT_FALSE(*resolve_fsdp_settings({}).enabled);
  EXPECT_EQ(logged.lines().find("has no effect"), std::string::npos);
}

// A program that follows Megatron-LM by itself.
TEST(ReferenceFiles, MegatronsSettingsCountUnlessTheVariableSaysNo) {
  const SettingsEnvironment environment(SettingsEnvironment::Variables{{"ACCELERATE_USE_MEGATRON_LM", "no"}});
  const ConfigurationFileOfTest file(std::string(kMegatron) + "distributed_type: MEGATRON_LM\n");
  EXPECT_EQ(resolve_state_settings({}).tensor_parallel_size, 1);
}

TEST(ReferenceFiles, TheRecipeOfFp8IsAnOptionsStruct) {
  const SettingsEnvironment environment({{"ACCELERATE_FP8_MARGIN", "5"},
                                         {"ACCELERATE_FP8_USE_MXFP8_BLOCK_SCALING", "1"},
                                         {"ACCELERATE_FP8_PAD_INNER_DIM", "yes"}});
  const ConfigurationFileOfTest file(
      "compute_environment: LOCAL_MACHINE\n"
      "distributed_type: 'NO'\n"
      "mixed_precision: fp8\n"
      "fp8_config:\n"
      "  backend: TE\n"
      "  amax_compute_algorithm: max\n"
      "  amax_history_length: 16\n"
      "  fp8_format: E4M3\n"
      "  margin: 2\n"
      "  interval: 3\n"
      "  override_linear_precision: [false, true, false]\n"
      "  use_autocast_during_eval: true\n");
  Fp8Settings settings;
  resolve_settings(settings);
  EXPECT_EQ(settings.backend, Fp8Backend::kTe);
  EXPECT_EQ(settings.amax_algorithm, Fp8AmaxAlgorithm::kMax);
  EXPECT_EQ(settings.amax_history_length, 16);
  EXPECT_EQ(settings.format, Fp8Format::kE4m3);
  EXPECT_EQ(settings.margin, 5) << "the variable goes before the file";
  EXPECT_EQ(settings.interval, 3);
  EXPECT_FALSE(settings.override_forward);
  EXPECT_TRUE(settings.override_input_gradient);
  EXPECT_EQ(settings.override_input_gradient.source, file.line(11));
  EXPECT_TRUE(settings.use_in_evaluation);
  EXPECT_TRUE(settings.use_mxfp8_block_scaling);
  EXPECT_TRUE(*settings.pad_inner_dim);
}

TEST(ReferenceFiles, WhatIsNotThereOrNotKnownIsRefusedWithItsLine) {
  const SettingsEnvironment environment;
  const struct {
    const char* content;
    int line;
    Status status;
    const char* expected;
  } files[] = {
      {"distributed_type: MEGATRON_LM\nmegatron_lm_config: {megatron_lm_expert_tensor_parallel_size: 2}\n", 2,
       Status::kInvalidArgument,
       "megatron_lm_expert_tensor_parallel_size is '2' and megatron_lm_tp_degree is '1'; expected 1, or the same"},
      {"distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_tp_degree: two\n", 3,
       Status::kInvalidArgument, "tensor_parallel_size is 'two'"},
      {"distributed_type: 'NO'\ndynamo_config:\n  dynamo_backend: INDUCTOR\n", 3, Status::kUnsupported,
       "torch.compile"},
      {"compute_environment: AMAZON_SAGEMAKER\n", 1, Status::kUnsupported, "SageMaker"},
      {"parallelism_config:\n  parallelism_config_cp_backend: x\n", 2, Status::kUnsupported, "context parallelism"},
      {"parallelism_config:\n  parallelism_config_cp_size: 2\n  parallelism_config_sp_size: 2\n", 3,
       Status::kInvalidArgument, "stands twice, or under two names"},
      {"fsdp_config:\n  fsdp_shard: 2\n", 2, Status::kInvalidArgument, "there is no option 'fsdp_shard'"},
      {"distributed_type: FSDP\nfsdp_config: {}\nfsdp_config: {}\n", 3, Status::kInvalidArgument, "stands twice"},
      {"fsdp_config:\n  fsdp_version: [1]\n", 2, Status::kInvalidArgument, "expected one value"},
      {"fp8_config: {override_linear_precision: true}\n", 1, Status::kInvalidArgument, "a list of three"},
      {"fp8_config: {override_linear_precision: [true, [no], no]}\n", 1, Status::kInvalidArgument,
       "expected one value"},
      {"fp8_config: {amax_history_len: 1, amax_history_length: 2}\n", 1, Status::kInvalidArgument, "stands twice"},
      {"fp8_config: {scale: 1}\n", 1, Status::kInvalidArgument, "there is no option 'scale'"},
      {"num_machine: 1\n", 1, Status::kInvalidArgument, "there is no option 'num_machine'"},
  };
  for (const auto& wrong : files) {
    const ConfigurationFileOfTest file(wrong.content);
    tests::expect_error(wrong.status, wrong.expected, [] { resolve_state_settings({}); });
    tests::expect_error(wrong.status, file.line(wrong.line), [] { resolve_state_settings({}); });
  }
}

TEST(ReferenceFiles, TheVariableOfCompilationGoesBeforeTheFile) {
  const SettingsEnvironment environment(SettingsEnvironment::Variables{{"ACCELERATE_DYNAMO_BACKEND", "no"}});
  const ConfigurationFileOfTest file("distributed_type: 'NO'\ndynamo_config:\n  dynamo_backend: INDUCTOR\n");
  EXPECT_NO_THROW(resolve_state_settings({}));
}

}  // namespace reference_files_test
}  // namespace accel
