// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's JSON and settings: what they mean here, and what is wrong in them.
#include "config/deepspeed_config.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/deepspeed_keys.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/precedence.hpp"
#include "expect_error.hpp"
#include "settings_fixture.hpp"

namespace accel {
namespace deepspeed_config_test {

using Variables = SettingsEnvironment::Variables;

DeepspeedSettings with_json(const std::string& json) {
  DeepspeedSettings settings;
  settings.enabled = true;
  settings.hf_ds_config = json;
  return settings;
}

DeepspeedConfig read(const std::string& json, const DeepspeedJob& job = {}) {
  return read_deepspeed_config(with_json(json), job);
}

DeepspeedJob job_of(Precision precision, int64_t steps = 1, int64_t ranks = 1) { return {precision, steps, ranks, {}}; }

bool has_line(const DeepspeedConfig& config, const std::string& begin) {
  return std::any_of(config.without_effect.begin(), config.without_effect.end(),
                     [&](const std::string& line) { return line.find(begin) == 0; });
}

TEST(DeepspeedConfig, StagesAreStrategiesOfSharding) {
  const struct {
    const char* stage;
    ShardingStrategy strategy;
    bool shards_gradients;
  } stages[] = {{"0", ShardingStrategy::kNoShard, false},
                {"1", ShardingStrategy::kShardGradOp, false},
                {"2", ShardingStrategy::kShardGradOp, true},
                {"3", ShardingStrategy::kFullShard, true}};
  for (const auto& stage : stages) {
    const DeepspeedConfig config = read(text("{\"zero_optimization\": {\"stage\": ", stage.stage, "}}"));
    EXPECT_EQ(config.fsdp.sharding_strategy, stage.strategy) << stage.stage;
    EXPECT_EQ(config.shards_gradients, stage.shards_gradients);
    EXPECT_TRUE(*config.fsdp.enabled);
    EXPECT_EQ(config.gradient_clipping, 0) << "as DeepSpeed, which clips only if it is told";
    EXPECT_EQ(config.gradient_accumulation_steps, 1);
    EXPECT_TRUE(config.without_effect.empty());
  }
}

TEST(DeepspeedConfig, WithoutAFileTheSettingsSayAll) {
  const SettingsEnvironment environment({{"ACCELERATE_USE_DEEPSPEED", "true"},
                                         {"ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"},
                                         {"ACCELERATE_GRADIENT_CLIPPING", "0.7"},
                                         {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none"},
                                         {"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", "none"},
                                         {"ACCELERATE_DEEPSPEED_CONFIG_FILE", "none"},
                                         {"ACCELERATE_DEEPSPEED_ZERO3_INIT", "true"}});
  const DeepspeedSettings settings = resolve_deepspeed_settings({});
  EXPECT_TRUE(settings.enabled);
  const DeepspeedConfig config = read_deepspeed_config(settings, job_of(Precision::kBf16, 4, 2));
  EXPECT_EQ(config.zero_stage, 3);
  EXPECT_EQ(config.gradient_clipping, 0.7);
  EXPECT_EQ(config.gradient_accumulation_steps, 4);
  EXPECT_EQ(config.fsdp.param_dtype.value, "bfloat16");
  EXPECT_EQ(config.fsdp.auto_wrap_policy, AutoWrapPolicy::kSizeBasedWrap);
  EXPECT_EQ(config.fsdp.min_num_params, 100000);
  EXPECT_TRUE(config.fsdp.cpu_ram_efficient_loading);
  EXPECT_FALSE(has_line(config, "zero3_init_flag"));
}

TEST(DeepspeedConfig, AutoValuesAreFilledAsTheReferenceDoes) {
  const SettingsEnvironment environment(
      {{"ACCELERATE_GRADIENT_CLIPPING", "auto"}, {"ACCELERATE_DEEPSPEED_ZERO_STAGE", "1"}});
  const WrittenFile file(
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto",
          "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
          "zero_optimization": {"stage": "auto", "offload_param": {"device": "auto"},
                                "stage3_gather_16bit_weights_on_model_save": "auto"}})");
  const DeepspeedConfig config =
      read_deepspeed_config(resolve_deepspeed_settings(with_json(file.path())), job_of(Precision::kBf16, 3, 2));
  EXPECT_EQ(config.zero_stage, 1);
  EXPECT_EQ(config.gradient_clipping, 1);
  EXPECT_EQ(config.gradient_accumulation_steps, 3);
  EXPECT_EQ(config.fsdp.param_dtype.value, "bfloat16");
  EXPECT_FALSE(config.train_micro_batch_size_per_gpu.has_value());
}

TEST(DeepspeedConfig, AWholeFileOfDeepspeed) {
  const DeepspeedConfig config = read(
      R"({"train_micro_batch_size_per_gpu": 4, "train_batch_size": 24, "gradient_accumulation_steps": 3,
          "gradient_clipping": 0.5, "steps_per_print": 1636, "communication_data_type": "fp32",
          "bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 0}, "flops_profiler": {"enabled": false},
          "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
          "zero_optimization": {"stage": 3, "overlap_comm": true, "reduce_bucket_size": "auto",
                                "stage3_param_persistence_threshold": 5e5,
                                "offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"}}})",
      job_of(Precision::kNo, 1, 2));
  EXPECT_EQ(config.gradient_accumulation_steps, 3);
  EXPECT_EQ(config.gradient_clipping, 0.5);
  EXPECT_EQ(config.train_micro_batch_size_per_gpu, 4);
  EXPECT_EQ(config.fsdp.param_dtype.value, "bfloat16");
  EXPECT_EQ(config.fsdp.reduce_dtype.value, "float32");
  EXPECT_EQ(config.fsdp.min_num_params, 500000);
  EXPECT_EQ(config.without_effect,
            (std::vector<std::string>{
                "steps_per_print: nothing is printed; accel_step_report() tells of times, trackers of values",
                "optimizer: the program makes it", "zero_optimization.overlap_comm: it is always so here",
                "zero_optimization.reduce_bucket_size: the groups of parameters say what is sent together"}));
}

TEST(DeepspeedConfig, TheScaleOfLossesIsFollowed) {
  const auto scale_of = [](const std::string& fp16, Precision precision = Precision::kFp16) {
    const DeepspeedConfig config =
        read(R"({"zero_optimization": {"stage": 1}, "fp16": )" + fp16 + "}", job_of(precision));
    EXPECT_TRUE(config.without_effect.empty());
    return config.loss_scale;
  };
  const auto defaults = scale_of(R"({"enabled": "auto"})");
  ASSERT_TRUE(defaults.has_value());
  EXPECT_EQ(defaults->loss_scale, 0);
  EXPECT_EQ(defaults->initial_scale_power, 16);
  EXPECT_EQ(defaults->loss_scale_window, 1000);
  EXPECT_EQ(defaults->hysteresis, 2);
  EXPECT_EQ(defaults->min_loss_scale, 1);
  EXPECT_FALSE(defaults->consecutive_hysteresis);
  const auto given = scale_of(
      R"({"enabled": true, "loss_scale": 128, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3,
          "consecutive_hysteresis": true, "min_loss_scale": 0.5})");
  ASSERT_TRUE(given.has_value());
  EXPECT_EQ(given->loss_scale, 128);
  EXPECT_EQ(given->initial_scale_power, 12);
  EXPECT_EQ(given->loss_scale_window, 500);
  EXPECT_EQ(given->hysteresis, 3);
  EXPECT_EQ(given->min_loss_scale, 0.5);
  EXPECT_TRUE(given->consecutive_hysteresis);
  EXPECT_FALSE(scale_of(R"({"enabled": "auto", "hysteresis": 3})", Precision::kBf16).has_value());
  EXPECT_FALSE(read(R"({"zero_optimization": {}})", job_of(Precision::kFp16)).loss_scale.has_value());
  for (const char* wrong :
       {R"("hysteresis": 0)", R"("hysteresis": 1.5)", R"("loss_scale": -1)", R"("initial_scale_power": 200)",
        R"("min_loss_scale": "small")", R"("consecutive_hysteresis": 1)"})
    tests::expect_error(Status::kInvalidArgument, "hf_ds_config: fp16.",
                        [&] { scale_of(std::string(R"({"enabled": true, )") + wrong + "}"); });
}

TEST(DeepspeedConfig, KeysThatAreNotKnownAreNamed) {
  const DeepspeedConfig config = read(R"({"gradient_clip": 1, "_comment": "mine", "zero_optimization": {"stage": 1}})");
  EXPECT_TRUE(has_line(config, "gradient_clip: it is not known; the nearest is gradient_clipping"));
  EXPECT_TRUE(has_line(config, "_comment: it is not known"));
  tests::expect_error(
      Status::kInvalidArgument,
      "hf_ds_config: there is no key 'zero_optimization.stages'; the nearest is zero_optimization.stage",
      [] { read(R"({"zero_optimization": {"stages": 1}})"); });
}

TEST(DeepspeedConfig, WhatIsWrongIsOneLineThatNamesTheKey) {
  const struct {
    const char* json;
    const char* expected;
  } files[] = {
      {"{}", "hf_ds_config has no zero_optimization"},
      {"{", "hf_ds_config"},
      {R"({"zero_optimization": 3})", "zero_optimization is 3; expected an object"},
      {R"({"zero_optimization": {"stage": 4}})", "zero_optimization.stage is 4; expected from 0 to 3, or \"auto\""},
      {R"({"zero_optimization": {"stage": 1.5}})", "zero_optimization.stage is 1.5"},
      {R"({"zero_optimization": {"stage": "most"}})", "zero_optimization.stage is \"most\""},
      {R"({"gradient_clipping": -1, "zero_optimization": {"stage": 1}})",
       "gradient_clipping is -1; expected at least 0"},
      {R"({"gradient_accumulation_steps": 0, "zero_optimization": {}})", "gradient_accumulation_steps is 0"},
      {R"({"train_micro_batch_size_per_gpu": 0, "zero_optimization": {}})", "train_micro_batch_size_per_gpu is 0"},
      {R"({"bf16": {"enabled": 1}, "zero_optimization": {}})", "bf16.enabled is 1; expected true or false"},
      {R"({"zero_optimization": {"offload_param": {"device": "disk"}}})",
       "zero_optimization.offload_param.device is \"disk\"; expected one of none, cpu, nvme"},
      {R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})", "offload_param_nvme_path is not given"},
      {R"({"communication_data_type": "int8", "zero_optimization": {}})",
       "reduce_dtype is 'int8' (from communication_data_type of hf_ds_config)"},
      {R"({"train_batch_size": 9, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {}})",
       "train_batch_size is 9 and train_micro_batch_size_per_gpu is 4, with 1 gradient_accumulation_steps and 1 "
       "data-parallel ranks; expected 4"},
  };
  for (const auto& wrong : files)
    tests::expect_error(Status::kInvalidArgument, wrong.expected, [&] { read(wrong.json); });
  tests::expect_error(Status::kNotFound, "/no/such/file.json", [] { read("/no/such/file.json"); });
}

TEST(DeepspeedConfig, SettingsThatSayOtherwiseThanTheFileAreOneError) {
  const SettingsEnvironment environment(Variables{{"ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"}});
  DeepspeedSettings settings =
      with_json(R"({"gradient_clipping": 0.5, "gradient_accumulation_steps": 3, "zero_optimization": {"stage": 3}})");
  settings.gradient_clipping = 1.5;
  settings.gradient_accumulation_steps = 3;
  settings = resolve_deepspeed_settings(settings);
  tests::expect_error(
      Status::kInvalidArgument,
      "zero_optimization.stage is 3 and zero_stage is 2 (from ACCELERATE_DEEPSPEED_ZERO_STAGE), "
      "gradient_clipping is 0.5 and gradient_clipping is 1.5; expected the same, or \"auto\" in the file",
      [&] { read_deepspeed_config(settings, {}); });
}

TEST(DeepspeedConfig, FieldsOfTheReferencesFileBesideOneOfDeepspeedAreRefused) {
  const SettingsEnvironment environment(
      {{"ACCELERATE_USE_DEEPSPEED", "1"},
       {"ACCELERATE_DEEPSPEED_CONFIG_FILE", "ds.json"},
       {"ACCELERATE_CONFIG_DS_FIELDS", "deepspeed_config_file,zero3_init_flag,zero_stage,mixed_precision"}});
  tests::expect_error(Status::kInvalidArgument, "zero_stage, mixed_precision are set besides",
                      [] { resolve_deepspeed_settings({}); });
}

TEST(DeepspeedConfig, PrecisionsThatClashAreRefused) {
  const auto both = R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}, "zero_optimization": {}})";
  tests::expect_error(Status::kInvalidArgument, "fp16.enabled and bf16.enabled are both true", [&] { read(both); });
  const auto fp16 = R"({"fp16": {"enabled": true}, "zero_optimization": {}})";
  tests::expect_error(Status::kInvalidArgument, "fp16.enabled is true and mixed_precision is bf16",
                      [&] { read(fp16, job_of(Precision::kBf16)); });
  tests::expect_error(Status::kInvalidArgument, "fp16.enabled is true and mixed_precision is no", [&] { read(fp16); });
  EXPECT_EQ(read(fp16, job_of(Precision::kFp16)).fsdp.param_dtype.value, "float16");
  const auto bf16 = R"({"bf16": {"enabled": true}, "zero_optimization": {}})";
  tests::expect_error(Status::kInvalidArgument, "bf16.enabled is true and mixed_precision is fp16",
                      [&] { read(bf16, job_of(Precision::kFp16)); });
  const auto none = R"({"bf16": {"enabled": false}, "zero_optimization": {}})";
  tests::expect_error(Status::kInvalidArgument, "bf16.enabled is false and mixed_precision is bf16",
                      [&] { read(none, job_of(Precision::kBf16)); });
  EXPECT_EQ(read(none).fsdp.param_dtype.value, "");
}

TEST(DeepspeedConfig, OffloadIsThatOfSharding) {
  const DeepspeedConfig config = read(
      R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}})");
  EXPECT_TRUE(config.fsdp.cpu_offload);
  EXPECT_EQ(config.fsdp.cpu_offload.source, "zero_optimization.offload_param.device of hf_ds_config");
  EXPECT_TRUE(config.fsdp.offload_optimizer);
  const DeepspeedConfig second = read(R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})");
  EXPECT_TRUE(second.fsdp.offload_optimizer && !second.fsdp.cpu_offload);
  DeepspeedSettings settings;
  settings.zero_stage = 3;
  settings.offload_param_device = OffloadDevice::kNvme;
  settings.offload_param_nvme_path = "/fast";
  const DeepspeedConfig third = read_deepspeed_config(settings, {});
  EXPECT_TRUE(third.fsdp.cpu_offload);
  EXPECT_EQ(third.fsdp.offload_folder.value, "/fast");
}

TEST(DeepspeedConfig, ModulesThatAreGatheredAsOneAreLeaves) {
  DeepspeedSettings settings;
  settings.zero_stage = 3;
  settings.transformer_moe_cls_names = "MixtralSparseMoeBlock, Qwen2MoeSparseMoeBlock";
  DeepspeedConfig config = read_deepspeed_config(settings, {});
  EXPECT_EQ(config.fsdp.leaf_module_classes.value, "MixtralSparseMoeBlock,Qwen2MoeSparseMoeBlock");
  EXPECT_EQ(config.fsdp.auto_wrap_policy, AutoWrapPolicy::kSizeBasedWrap) << "all others are gathered one by one";
  EXPECT_EQ(config.fsdp.min_num_params, 100000);
  settings.zero_stage = 2;
  EXPECT_TRUE(has_line(read_deepspeed_config(settings, {}), "transformer_moe_cls_names: the stage of ZeRO is not 3"));
  settings = with_json(R"({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 500}})");
  settings.transformer_moe_cls_names = "Expert";
  config = read_deepspeed_config(settings, {});
  EXPECT_EQ(config.fsdp.leaf_module_classes.value, "Expert");
  EXPECT_EQ(config.fsdp.min_num_params, 500);
}

DeepspeedConfig with_loaders(const std::string& json, const std::vector<int64_t>& batch_sizes, bool is_min = true) {
  DeepspeedSettings settings = with_json(json);
  settings.is_train_batch_min = is_min;
  DeepspeedJob job = job_of(Precision::kNo, 3, 2);
  job.batch_sizes = batch_sizes;
  return read_deepspeed_config(settings, job);
}

TEST(DeepspeedConfig, LoadersSayTheBatchSizesThatAreLeftToThem) {
  const std::string automatic =
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
          "zero_optimization": {"stage": 2}})";
  EXPECT_EQ(with_loaders(automatic, {8, 4}).train_micro_batch_size_per_gpu, 4);
  EXPECT_EQ(with_loaders(automatic, {8, 4}).train_batch_size, 24);
  EXPECT_EQ(with_loaders(automatic, {8, 4}, false).train_micro_batch_size_per_gpu, 8);
  EXPECT_EQ(with_loaders(automatic, {8, 4}, false).train_batch_size, 48);
  EXPECT_FALSE(with_loaders(automatic, {}).train_batch_size.has_value());

  DeepspeedJob job;
  job.batch_sizes = {6, 5};
  EXPECT_EQ(read_deepspeed_config({}, job).train_micro_batch_size_per_gpu, 5) << "without a file";

  const std::string all =
      R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
          "zero_optimization": {"stage": 2}})";
  EXPECT_EQ(with_loaders(all, {8, 4}).train_micro_batch_size_per_gpu, 4);
  EXPECT_EQ(with_loaders(all, {}).train_batch_size, 24);
  tests::expect_error(
      Status::kInvalidArgument,
      "train_batch_size is 24 and the batch size of the loaders is 8, with 3 gradient_accumulation_steps "
      "and 2 data-parallel ranks; expected 48",
      [&] {
        with_loaders(all, {8, 4}, false);
      });

  // What the file says counts.
  const std::string micro = R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3,
                                "zero_optimization": {"stage": 2}})";
  EXPECT_EQ(with_loaders(micro, {8, 4}).train_micro_batch_size_per_gpu, 2);
  EXPECT_EQ(with_loaders(micro, {8, 4}).train_batch_size, 12);
  const std::string both = R"({"train_batch_size": 36, "gradient_accumulation_steps": 3,
                               "zero_optimization": {"stage": 2}})";
  EXPECT_EQ(with_loaders(both, {8}).train_micro_batch_size_per_gpu, 6) << "as DeepSpeed, which divides";
}

TEST(DeepspeedConfig, ValuesAreFoundByTheirPaths) {
  const Json document = parse_json(R"({"a": {"b": {"c": 1}, "d": null}, "e": 2})", "test");
  EXPECT_EQ(find_deepspeed_value(document, "a.b.c")->integer(), 1);
  EXPECT_EQ(find_deepspeed_value(document, "e")->integer(), 2);
  for (const char* const path : {"a.d", "a.b.x", "e.f", "x"}) EXPECT_EQ(find_deepspeed_value(document, path), nullptr);
}

}  // namespace deepspeed_config_test
}  // namespace accel
