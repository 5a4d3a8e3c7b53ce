// SPDX-License-Identifier: Apache-2.0
// Settings of sharding: where they come from, what goes together, what depends on the version.
#include "config/fsdp_settings.hpp"

#include <gtest/gtest.h>

#include "config/precedence.hpp"
#include "expect_error.hpp"
#include "settings_fixture.hpp"

namespace accel {
namespace fsdp_settings_test {

using Variables = SettingsEnvironment::Variables;

FsdpSettings enabled() {
  FsdpSettings settings;
  settings.enabled = true;
  return settings;
}

// What the launcher of Accelerate sets where its user says nothing more.
const Variables kLaunched = {{"ACCELERATE_USE_FSDP", "true"},
                             {"FSDP_VERSION", "1"},
                             {"FSDP_SHARDING_STRATEGY", "FULL_SHARD"},
                             {"FSDP_RESHARD_AFTER_FORWARD", "true"},
                             {"FSDP_OFFLOAD_PARAMS", "false"},
                             {"FSDP_MIN_NUM_PARAMS", "100000000"},
                             {"FSDP_FORWARD_PREFETCH", "false"},
                             {"FSDP_USE_ORIG_PARAMS", "true"},
                             {"FSDP_CPU_RAM_EFFICIENT_LOADING", "true"},
                             {"FSDP_SYNC_MODULE_STATES", "true"},
                             {"FSDP_ACTIVATION_CHECKPOINTING", "false"},
                             {"FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "false"}};

Variables launched(const Variables& changed) {
  Variables all = kLaunched;
  all.insert(all.end(), changed.begin(), changed.end());
  return all;
}

TEST(ShardingSettings, AreOffUnlessTheyAreAskedFor) {
  const SettingsEnvironment environment;
  EXPECT_FALSE(*resolve_fsdp_settings({}).enabled);
  EXPECT_TRUE(*resolve_fsdp_settings({}, /*has_shards=*/true).enabled);
  EXPECT_TRUE(*resolve_fsdp_settings(enabled()).enabled);
  FsdpSettings off;
  off.enabled = false;
  EXPECT_FALSE(*resolve_fsdp_settings(off).enabled);
  tests::expect_error(Status::kInvalidArgument, "data_parallel_shard_size", [&] { resolve_fsdp_settings(off, true); });
}

TEST(ShardingSettings, TheEnvironmentOfTheReferencesLauncherIsReadInFull) {
  for (const char* const version : {"1", "2"}) {
    const SettingsEnvironment environment(
        launched({{"FSDP_VERSION", version}, {"FSDP_AUTO_WRAP_POLICY", "SIZE_BASED_WRAP"}}));
    const LoggedText logged;
    const FsdpSettings settings = resolve_fsdp_settings({});
    EXPECT_TRUE(*settings.enabled);
    EXPECT_EQ(settings.sharding_strategy, ShardingStrategy::kFullShard);
    EXPECT_EQ(settings.auto_wrap_policy, AutoWrapPolicy::kSizeBasedWrap);
    EXPECT_EQ(settings.min_num_params, 100000000);
    EXPECT_TRUE(settings.cpu_ram_efficient_loading);
    EXPECT_EQ(settings.state_dict_type,
              version[0] == '1' ? StateDictType::kFullStateDict : StateDictType::kShardedStateDict);
    EXPECT_EQ(settings.reshard_after_forward.value, version[0] == '1' ? std::nullopt : std::optional<bool>(true));
    EXPECT_EQ(logged.lines(), "") << version;
  }
}

TEST(ShardingSettings, ChoicesAreNamesInAnyCaseOrNumbers) {
  for (const char* const written : {"SHARD_GRAD_OP", "shard_grad_op", "Shard_Grad_Op", "2"}) {
    const SettingsEnvironment environment({{"ACCELERATE_USE_FSDP", "1"},
                                           {"FSDP_SHARDING_STRATEGY", written},
                                           {"FSDP_STATE_DICT_TYPE", "3"},
                                           {"FSDP_BACKWARD_PREFETCH", "no_prefetch"},
                                           {"FSDP_AUTO_WRAP_POLICY", "Transformer_Based_Wrap"}});
    const FsdpSettings settings = resolve_fsdp_settings({});
    EXPECT_EQ(settings.sharding_strategy, ShardingStrategy::kShardGradOp) << written;
    EXPECT_EQ(settings.state_dict_type, StateDictType::kShardedStateDict);
    EXPECT_EQ(settings.backward_prefetch, BackwardPrefetch::kNoPrefetch);
    EXPECT_EQ(settings.auto_wrap_policy, AutoWrapPolicy::kTransformerBasedWrap);
  }
  const SettingsEnvironment environment({{"ACCELERATE_USE_FSDP", "1"}, {"FSDP_SHARDING_STRATEGY", "6"}});
  tests::expect_error(Status::kInvalidArgument,
                      "sharding_strategy is '6' (from FSDP_SHARDING_STRATEGY); expected one of full_shard, ",
                      [] { resolve_fsdp_settings({}); });
}

TEST(ShardingSettings, ReshardAfterForwardIsAStrategyInVersionOneAndYesOrNoInVersionTwo) {
  const auto resolved = [](const char* version, const char* written) {
    const SettingsEnvironment environment(
        {{"ACCELERATE_USE_FSDP", "1"}, {"FSDP_VERSION", version}, {"FSDP_RESHARD_AFTER_FORWARD", written}});
    return resolve_fsdp_settings({});
  };
  EXPECT_EQ(resolved("1", "shard_grad_op").sharding_strategy, ShardingStrategy::kShardGradOp);
  EXPECT_EQ(resolved("1", "3").sharding_strategy, ShardingStrategy::kNoShard);
  EXPECT_EQ(resolved("1", "true").sharding_strategy, ShardingStrategy::kFullShard);
  EXPECT_EQ(resolved("1", "shard_grad_op").reshard_after_forward.value, std::nullopt);
  EXPECT_EQ(resolved("2", "False").reshard_after_forward.value, false);
  EXPECT_EQ(resolved("2", "1").reshard_after_forward.value, true);
  tests::expect_error(Status::kInvalidArgument, "fsdp_version is 1; expected a strategy",
                      [&] { resolved("1", "false"); });
  tests::expect_error(Status::kInvalidArgument, "reshard_after_forward is 'most' (from FSDP_RESHARD_AFTER_FORWARD)",
                      [&] { resolved("1", "most"); });
  tests::expect_error(Status::kInvalidArgument, "fsdp_version is 2; expected yes or no",
                      [&] { resolved("2", "full_shard"); });
}

TEST(ShardingSettings, OfTwoStrategiesTheOneOfThatNameCountsAndTheOtherIsNamed) {
  const SettingsEnvironment environment(launched({{"FSDP_RESHARD_AFTER_FORWARD", "shard_grad_op"}}));
  const LoggedText logged;
  EXPECT_EQ(resolve_fsdp_settings({}).sharding_strategy, ShardingStrategy::kFullShard);
  EXPECT_NE(logged.lines().find("reshard_after_forward is 'shard_grad_op' (from FSDP_RESHARD_AFTER_FORWARD) and "
                                "sharding_strategy is full_shard (from FSDP_SHARDING_STRATEGY)"),
            std::string::npos)
      << logged.lines();
}

TEST(ShardingSettings, WhatVersionTwoDoesNotHaveIsNamedInOneWarning) {
  const SettingsEnvironment environment(Variables{{"FSDP_BACKWARD_PREFETCH", "BACKWARD_POST"}});
  FsdpSettings settings = enabled();
  settings.fsdp_version = 2;
  settings.sharding_strategy = ShardingStrategy::kNoShard;
  settings.sync_module_states = false;
  const LoggedText logged;
  settings = resolve_fsdp_settings(settings);
  EXPECT_EQ(settings.sharding_strategy, ShardingStrategy::kFullShard);
  EXPECT_EQ(settings.backward_prefetch, BackwardPrefetch::kBackwardPre);
  EXPECT_TRUE(settings.sync_module_states);
  EXPECT_EQ(logged.lines().find("sharding_strategy is no_shard, backward_prefetch is backward_post (from "
                                "FSDP_BACKWARD_PREFETCH), sync_module_states is no and fsdp_version is 2"),
            0U)
      << logged.lines();
}

TEST(ShardingSettings, WhatDoesNotGoTogetherIsRefusedByName) {
  const SettingsEnvironment environment;
  const auto refused = [](int64_t version, const std::function<void(FsdpSettings&)>& change, const char* message) {
    FsdpSettings settings = enabled();
    settings.fsdp_version = version;
    change(settings);
    tests::expect_error(Status::kInvalidArgument, message, [&] { resolve_fsdp_settings(settings); });
  };
  const auto nothing = [](FsdpSettings&) {};
  refused(3, nothing, "fsdp_version is 3; expected from 1 to 2");
  refused(
      2, [](FsdpSettings& settings) { settings.activation_checkpointing_offload = true; },
      "activation_checkpointing_offload is yes and activation_checkpointing is no");
  const auto offload = [](FsdpSettings& settings) {
    settings.activation_checkpointing = true;
    settings.activation_checkpointing_offload = true;
  };
  refused(1, offload, "activation_checkpointing_offload is yes and fsdp_version is 1");
  refused(
      2, [](FsdpSettings& settings) { settings.state_dict_type = StateDictType::kLocalStateDict; },
      "state_dict_type is local_state_dict and fsdp_version is 2");
  refused(
      2, [](FsdpSettings& settings) { settings.forward_prefetch = true; },
      "forward_prefetch is yes and fsdp_version is 2");
  refused(
      1, [](FsdpSettings& settings) { settings.param_dtype = "int8"; }, "param_dtype is 'int8'; expected float32");
  refused(
      1, [](FsdpSettings& settings) { settings.reduce_dtype = "half"; }, "reduce_dtype is 'half'");
  refused(
      2, [](FsdpSettings& settings) { settings.output_dtype = "float64"; }, "output_dtype is 'float64'");
  refused(
      1, [](FsdpSettings& settings) { settings.ignored_modules = "layers.(0"; }, "not a regular expression");
  refused(
      1, [](FsdpSettings& settings) { settings.transformer_cls_names_to_wrap = "Block,,Head"; },
      "transformer_cls_names_to_wrap is 'Block,,Head', where a name is empty");
  refused(
      1, [](FsdpSettings& settings) { settings.transformer_cls_names_to_wrap = "Block,"; }, "a name is empty");
}

TEST(ShardingSettings, AFolderIsForWhatIsOffloaded) {
  const SettingsEnvironment environment;
  FsdpSettings settings = enabled();
  settings.offload_folder = "/fast";
  tests::expect_error(Status::kInvalidArgument, "offload_folder is /fast, and nothing is offloaded",
                      [&] { resolve_fsdp_settings(settings); });
  settings.offload_optimizer = true;
  EXPECT_EQ(resolve_fsdp_settings(settings).offload_folder.value, "/fast");
}

TEST(ShardingSettings, EfficientLoadingTakesTheWeightsFromRankZero) {
  const SettingsEnvironment environment(launched({{"FSDP_SYNC_MODULE_STATES", "false"}}));
  const LoggedText logged;
  EXPECT_TRUE(resolve_fsdp_settings({}).sync_module_states);
  EXPECT_NE(logged.lines().find("sync_module_states is no (from FSDP_SYNC_MODULE_STATES)"), std::string::npos)
      << logged.lines();
}

TEST(ShardingSettings, NamesOfTypesAndClassesAreBroughtIntoOneForm) {
  const SettingsEnvironment environment(
      {{"FSDP_TRANSFORMER_CLS_TO_WRAP", "Block, Head"}, {"FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP"}});
  FsdpSettings settings = enabled();
  settings.param_dtype = "bf16";
  settings.reduce_dtype = "fp32";
  settings.output_dtype = "fp8";
  settings.ignored_modules = ".*\\.q_proj$";
  settings = resolve_fsdp_settings(settings);
  EXPECT_EQ(settings.param_dtype.value, "bfloat16");
  EXPECT_EQ(settings.reduce_dtype.value, "float32");
  EXPECT_EQ(settings.output_dtype.value, "bfloat16");
  EXPECT_EQ(settings.transformer_cls_names_to_wrap.value, "Block,Head");
  EXPECT_EQ(class_names("Block, Head", "x"), (std::vector<std::string>{"Block", "Head"}));
  EXPECT_TRUE(class_names("", "x").empty());
}

TEST(ShardingSettings, VariablesOfShardingThatIsOffAreNamed) {
  const SettingsEnvironment environment({{"FSDP_SHARDING_STRATEGY", "NO_SHARD"}, {"FSDP_USE_ORIG_PARAMS", "true"}});
  const LoggedText logged;
  EXPECT_FALSE(*resolve_fsdp_settings({}).enabled);
  EXPECT_EQ(logged.lines().find("sharding_strategy is no_shard (from FSDP_SHARDING_STRATEGY), without effect"), 0U)
      << logged.lines();
}

TEST(ShardingSettings, ResolvingTwiceChangesNothing) {
  const SettingsEnvironment environment(launched({{"FSDP_VERSION", "2"}}));
  const FsdpSettings once = resolve_fsdp_settings({}), twice = resolve_fsdp_settings(once);
  EXPECT_EQ(describe_settings(once), describe_settings(twice));
}

}  // namespace fsdp_settings_test
}  // namespace accel
