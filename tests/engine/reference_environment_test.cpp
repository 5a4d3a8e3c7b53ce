// SPDX-License-Identifier: Apache-2.0
// Every variable of the environment that Accelerate reads is read here too, or refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "config/generated/settings/state/state.hpp"
#include "config/option_table.hpp"
#include "config/precedence.hpp"
#include "config/state_settings.hpp"
#include "expect_error.hpp"
#include "precision/fp8_recipe.hpp"
#include "settings_fixture.hpp"

namespace accel {
namespace reference_environment_test {

using Variables = SettingsEnvironment::Variables;

bool is_of_an_option(const std::string& variable) {
  for (const OptionTable* const table : all_option_tables())
    for (const OptionField& field : *table)
      if (field.variable != nullptr && variable == field.variable) return true;
  return false;
}

// Those that are read without a field of an options struct, and where.
constexpr const char* kReadElsewhere[] = {
    "ACCELERATE_CONFIG_DS_FIELDS",        // config/deepspeed_config.cpp
    "ACCELERATE_USE_PARALLELISM_CONFIG",  // config/unsupported_environment.cpp: no contradicts sizes
    "ACCELERATE_USE_SAGEMAKER",           // the same: with a type, or without one
    "ACCELERATE_INIT_INCLUDE_BUFFERS",    // capi/models/module.cpp
    "ACCELERATE_LOG_LEVEL",               // Python's get_logger()
    "PARALLELISM_CONFIG_SP_SIZE",         // config/state_settings.cpp: another way to share sequences
    "PARALLELISM_CONFIG_SP_BACKEND",      // Python's ParallelismConfig
    "PARALLELISM_CONFIG_SP_SEQ_LENGTH",   // these three: Python's DeepSpeedSequenceParallelConfig
    "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE",
    "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION",
    "ACCELERATE_DYNAMO_MODE",                      // these four describe what ACCELERATE_DYNAMO_BACKEND turns on, and
    "ACCELERATE_DYNAMO_USE_FULLGRAPH",             // are read by Python's TorchDynamoPlugin
    "ACCELERATE_DYNAMO_USE_DYNAMIC",               //
    "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION",  //
    "ACCELERATE_FP8_OPT_LEVEL",                    // Python's MSAMPRecipeKwargs and DeepSpeedPlugin
};
// Those that say nothing to this library: they describe what another variable turns on, which is refused, or turn off a
// check that is not made here.
constexpr const char* kDescribeWhatIsRefused[] = {
    "ACCELERATE_ALLOW_CP_STANDALONE",  // context parallelism needs no sharding here
    "ACCELERATE_BYPASS_DEVICE_MAP",    // models with a device map are not refused here
    "ACCELERATE_DEBUG_RDV_FILE",       // of Accelerate's debug_launcher to itself
    "ACCELERATE_ENABLE_RICH",          // colours of tracebacks
};

template <size_t kSize>
bool is_in(const char* const (&names)[kSize], const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

TEST(ReferenceEnvironment, NoVariableIsIgnoredInSilence) {
  // Of Accelerate 1.15.0, with a value that asks for something.
  const Variables variables = {
      {"ACCELERATE_ALLOW_CP_STANDALONE", "true"},
      {"ACCELERATE_BYPASS_DEVICE_MAP", "true"},
      {"ACCELERATE_CONFIG_DS_FIELDS", "zero_stage"},
      {"ACCELERATE_CPU_AFFINITY", "1"},
      {"ACCELERATE_DEBUG_MODE", "1"},
      {"ACCELERATE_DEBUG_RDV_FILE", "x"},
      {"ACCELERATE_DEEPSPEED_CONFIG_FILE", "x"},
      {"ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", "x"},
      {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "cpu"},
      {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH", "x"},
      {"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "cpu"},
      {"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", "x"},
      {"ACCELERATE_DEEPSPEED_ZERO3_INIT", "1"},
      {"ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "1"},
      {"ACCELERATE_DEEPSPEED_ZERO_STAGE", "1"},
      {"ACCELERATE_DOWNCAST_BF16", "1"},
      {"ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"},
      {"ACCELERATE_DYNAMO_MODE", "x"},
      {"ACCELERATE_DYNAMO_USE_DYNAMIC", "1"},
      {"ACCELERATE_DYNAMO_USE_FULLGRAPH", "1"},
      {"ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "1"},
      {"ACCELERATE_ENABLE_RICH", "1"},
      {"ACCELERATE_FP8_AMAX_COMPUTE_ALGO", "x"},
      {"ACCELERATE_FP8_AMAX_HISTORY_LEN", "1"},
      {"ACCELERATE_FP8_BACKEND", "TE"},
      {"ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", "1"},
      {"ACCELERATE_FP8_FORMAT", "E4M3"},
      {"ACCELERATE_FP8_INTERVAL", "1"},
      {"ACCELERATE_FP8_MARGIN", "1"},
      {"ACCELERATE_FP8_OPT_LEVEL", "O1"},
      {"ACCELERATE_FP8_OVERRIDE_DGRAD", "1"},
      {"ACCELERATE_FP8_OVERRIDE_FPROP", "1"},
      {"ACCELERATE_FP8_OVERRIDE_WGRAD", "1"},
      {"ACCELERATE_FP8_PAD_INNER_DIM", "1"},
      {"ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", "1"},
      {"ACCELERATE_FP8_USE_MXFP8_BLOCK_SCALING", "1"},
      {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "2"},
      {"ACCELERATE_GRADIENT_CLIPPING", "1"},
      {"ACCELERATE_INIT_INCLUDE_BUFFERS", "1"},
      {"ACCELERATE_IN_TPU_POD", "1"},
      {"ACCELERATE_LOG_LEVEL", "INFO"},
      {"ACCELERATE_MIXED_PRECISION", "bf16"},
      {"ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE", "DATA_PARALLEL"},
      {"ACCELERATE_TORCH_DEVICE", "cpu"},
      {"ACCELERATE_USE_CPU", "1"},
      {"ACCELERATE_USE_DEEPSPEED", "1"},
      {"ACCELERATE_USE_FSDP", "1"},
      {"ACCELERATE_USE_MEGATRON_LM", "1"},
      {"ACCELERATE_USE_PARALLELISM_CONFIG", "1"},
      {"ACCELERATE_USE_SAGEMAKER", "1"},
      {"FSDP_ACTIVATION_CHECKPOINTING", "1"},
      {"FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "1"},
      {"FSDP_AUTO_WRAP_POLICY", "NO_WRAP"},
      {"FSDP_BACKWARD_PREFETCH", "NO_PREFETCH"},
      {"FSDP_CPU_RAM_EFFICIENT_LOADING", "1"},
      {"FSDP_FORWARD_PREFETCH", "1"},
      {"FSDP_IGNORED_MODULES", "x"},
      {"FSDP_MIN_NUM_PARAMS", "1"},
      {"FSDP_OFFLOAD_PARAMS", "1"},
      {"FSDP_RESHARD_AFTER_FORWARD", "1"},
      {"FSDP_SHARDING_STRATEGY", "1"},
      {"FSDP_STATE_DICT_TYPE", "1"},
      {"FSDP_SYNC_MODULE_STATES", "1"},
      {"FSDP_TRANSFORMER_CLS_TO_WRAP", "x"},
      {"FSDP_USE_ORIG_PARAMS", "1"},
      {"FSDP_VERSION", "2"},
      {"PARALLELISM_CONFIG_CP_BACKEND", "x"},
      {"PARALLELISM_CONFIG_CP_COMM_STRATEGY", "alltoall"},
      {"PARALLELISM_CONFIG_CP_SIZE", "2"},
      {"PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "2"},
      {"PARALLELISM_CONFIG_DP_SHARD_SIZE", "2"},
      {"PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION", "x"},
      {"PARALLELISM_CONFIG_SP_BACKEND", "x"},
      {"PARALLELISM_CONFIG_SP_SEQ_LENGTH", "2"},
      {"PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE", "1"},
      {"PARALLELISM_CONFIG_SP_SIZE", "2"},
      {"PARALLELISM_CONFIG_TP_SIZE", "2"},
  };
  for (const auto& [name, value] : variables) {
    SCOPED_TRACE(name);
    if (is_of_an_option(name) || is_in(kReadElsewhere, name) || is_in(kDescribeWhatIsRefused, name)) continue;
    const SettingsEnvironment environment(Variables{{name, value}});
    tests::expect_error(Status::kUnsupported, text("environment variable ", name, " is '", value, "', which asks for "),
                        [] { resolve_state_settings({}); });
  }
}

TEST(ReferenceEnvironment, WhatTheReferencesLauncherAlwaysSetsAsksForNothing) {
  const SettingsEnvironment environment({{"ACCELERATE_DYNAMO_BACKEND", "NO"},
                                         {"ACCELERATE_DYNAMO_MODE", "default"},
                                         {"ACCELERATE_DYNAMO_USE_DYNAMIC", "False"},
                                         {"ACCELERATE_DYNAMO_USE_FULLGRAPH", "False"},
                                         {"ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "False"},
                                         {"ACCELERATE_MIXED_PRECISION", "no"},
                                         {"ACCELERATE_USE_CPU", "True"},
                                         {"ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
                                         {"ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE", "NO"},
                                         {"ACCELERATE_USE_SAGEMAKER", "true"},
                                         {"PARALLELISM_CONFIG_SP_SIZE", "1"},
                                         {"PARALLELISM_CONFIG_SP_BACKEND", "deepspeed"},
                                         {"PARALLELISM_CONFIG_CP_BACKEND", "torch"}});
  EXPECT_NO_THROW(resolve_state_settings({}));
}

// Variables of torchao's recipe stand beside any other one.
TEST(ReferenceEnvironment, TheReferencesLauncherSetsTheVariablesOfAllRecipesOfFp8) {
  for (const char* const backend : {"TE", "AO", "MSAMP"}) {
    const SettingsEnvironment environment({{"ACCELERATE_FP8_BACKEND", backend},
                                           {"ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", "1"},
                                           {"ACCELERATE_FP8_PAD_INNER_DIM", "1"},
                                           {"ACCELERATE_FP8_OPT_LEVEL", "O2"}});
    Fp8Settings settings;
    resolve_settings(settings);
    const precision::Fp8Recipe recipe = precision::make_fp8_recipe(settings);
    const bool is_ao = std::string(backend) == "AO";
    EXPECT_EQ(recipe.fsdp_all_gather, is_ao) << backend;
    EXPECT_EQ(recipe.pad_inner_dim, is_ao) << backend;
    EXPECT_EQ(recipe.skip_first_and_last, is_ao) << backend;
  }
}

TEST(ReferenceEnvironment, CompilationIsRefusedWithWhatThereIsInstead) {
  {
    const SettingsEnvironment eager(Variables{{"ACCELERATE_DYNAMO_BACKEND", "eager"}});
    EXPECT_NO_THROW(resolve_state_settings({}));
  }
  const SettingsEnvironment environment(Variables{{"ACCELERATE_DYNAMO_BACKEND", "TVM"}});
  tests::expect_error(Status::kUnsupported, "others have fused kernels and captured steps: expected no or eager",
                      [] { resolve_state_settings({}); });
}

TEST(ReferenceEnvironment, SizesOfAMeshThatIsTurnedOffAreAnError) {
  const SettingsEnvironment environment(
      {{"ACCELERATE_USE_PARALLELISM_CONFIG", "false"}, {"PARALLELISM_CONFIG_TP_SIZE", "2"}});
  tests::expect_error(Status::kInvalidArgument, "PARALLELISM_CONFIG_TP_SIZE is '2'",
                      [] { resolve_state_settings({}); });
}

}  // namespace reference_environment_test
}  // namespace accel
