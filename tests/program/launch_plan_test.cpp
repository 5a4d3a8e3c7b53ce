// SPDX-License-Identifier: Apache-2.0
// What `accel launch` starts: as Accelerate's launcher for each of its configuration files and command lines, but
// for the differences that stand here with their reasons.
#include "launch/plan/launch_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/environment.hpp"
#include "clean_environment.hpp"
#include "config/launch_configuration.hpp"
#include "expect_error.hpp"
#include "json/json.hpp"
#include "launch/plan/launch_option_list.hpp"
#include "os/regular_file.hpp"
#include "written_file.hpp"

namespace accel::launch {
namespace launch_plan_test {

using tests::CleanEnvironment;
using tests::expect_error;
using tests::WrittenFile;

using Map = std::map<std::string, std::string>;
const CleanEnvironment::Variables kNowhere = {{"HOME", "/nowhere"}};  // no file of `accel config`

std::string fixtures() { return environment_text("ACCEL_PARITY_DIR").value_or(ACCEL_PARITY_FIXTURES) + "/configs/"; }

GivenOptions given_by(const Json& flags) {
  GivenOptions given;
  const Json::Items& words = *flags.items();
  for (size_t i = 0; i < words.size(); ++i) {
    const LaunchOption& option = *find_launch_option(words[i].text()->substr(2));
    given[option.field.name] = option.has_value ? *words[++i].text() : "true";
  }
  return given;
}

Map map_of(const Json& object) {
  Map map;
  for (const auto& [name, value] : *object.members()) map[name] = *value.text();
  return map;
}

int machines_of(const std::string& file) {
  const LaunchConfiguration configuration = read_launch_configuration(fixtures() + file);
  return static_cast<int>(configuration.find("", "num_machines")->value.integer().value());
}

bool is_refused_here(const std::string& file, const Map& expected, const GivenOptions& given, std::string& reason) {
  // DeepSpeed leaves out single GPUs of a host.
  if (file == "deepspeed_machines.yaml" && expected.count("ACCELERATE_USE_DEEPSPEED") != 0)
    reason = "expected a hostfile that has the hosts to use";
  // Accelerate starts 1 process on each of 2 machines where 3 are asked for.
  else if (given.count("num_processes") != 0 && given.at("num_processes") == "3" && machines_of(file) == 2)
    reason = "expected a multiple of --num-machines, which is 2";
  return !reason.empty();
}

// What differs on purpose.
void apply_differences(const std::string& file, const LaunchPlan& plan, Map& expected) {
  // Threads of several ranks of a machine would all be put onto its first processors.
  if (plan.options.local_processes() > 1) {
    expected.erase("KMP_AFFINITY");
    expected.erase("KMP_BLOCKTIME");
  }
  // Ranks meet at a free port of the one machine, not at the one port of all jobs of the machine.
  if (plan.options.num_machines == 1 && expected["MASTER_ADDR"] == "127.0.0.1") expected.erase("MASTER_ADDR");
  expected.erase("MASTER_PORT");  // in the options
  // Accelerate never passes on these values of a file: its flags have defaults, which win.
  if (file == "multi_gpu.yaml") expected["ACCELERATE_CPU_AFFINITY"] = "1";
  if (file == "deepspeed_zero3.yaml" && expected.count("ACCELERATE_USE_DEEPSPEED") != 0)
    expected["ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH"] = "nvme";
  // In files Accelerate has other names than in its variables, so that it passes the defaults beside them.
  for (const auto& [name, short_name] :
       {std::pair("ACCELERATE_FP8_AMAX_COMPUTE_ALGORITHM", "ACCELERATE_FP8_AMAX_COMPUTE_ALGO"),
        std::pair("ACCELERATE_FP8_AMAX_HISTORY_LENGTH", "ACCELERATE_FP8_AMAX_HISTORY_LEN")})
    if (const auto found = expected.find(name); found != expected.end()) {
      expected[short_name] = found->second;
      expected.erase(name);
    }
  // What other recipes than that of torchao do not have.
  if (expected["ACCELERATE_FP8_BACKEND"] == "TE")
    for (const char* const name : {"ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", "ACCELERATE_FP8_PAD_INNER_DIM"})
      expected.erase(name);
  if (expected["ACCELERATE_FP8_BACKEND"].empty()) expected.erase("ACCELERATE_FP8_BACKEND");
  // All variables that are not set, or as they are anyway.
  if (expected["OMP_NUM_THREADS"] == "2") expected.erase("OMP_NUM_THREADS");
  if (expected["MASTER_ADDR"].empty()) expected.erase("MASTER_ADDR");
}

// Where the ranks meet, which the launchers of Accelerate are told in different ways: "10.0.0.7:29500", with an
// empty part for what is not said.
std::string meeting_place(const Json& launch, const Map& environment) {
  if (const auto found = environment.find("MASTER_PORT"); found != environment.end())
    return environment.at("MASTER_ADDR") + ":" + found->second;
  std::string address, port;
  if (const Json* const arguments = json_member(launch, "torch_arguments")) {
    const std::string endpoint = json_text(*arguments, "rdzv_endpoint", "");
    if (!endpoint.empty()) return endpoint;
    address = json_text(*arguments, "master_addr", "");
    port = json_text(*arguments, "master_port", "");
  }
  if (const Json* const command = json_member(launch, "command")) {
    const Json::Items& words = *command->items();
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (*words[i].text() == "--master_addr") address = *words[i + 1].text();
      if (*words[i].text() == "--master_port") port = *words[i + 1].text();
    }
  }
  return address + ":" + port;
}

void expect_launch(const std::string& file, const Json& launch) {
  GivenOptions given = given_by(*json_member(launch, "flags"));
  SCOPED_TRACE(file + " " + print_json(*json_member(launch, "flags")));
  given["config_file"] = fixtures() + file;
  const auto plan_it = [&] { return plan_launch(given, {"train.py", "--epochs", "3"}); };
  if (json_member(launch, "error") != nullptr) {
    // GPUs that --cpu leaves alone need not be two.
    if (file == "one_gpu_id.yaml" && given.count("cpu") != 0) return;
    return expect_error(Status::kInvalidArgument, "expected", plan_it);
  }
  Map expected = map_of(*json_member(launch, "environment"));
  const std::string place = meeting_place(launch, expected), port = place.substr(place.rfind(':') + 1);
  expected["MASTER_ADDR"] = place.substr(0, place.rfind(':'));
  std::string reason;
  if (is_refused_here(file, expected, given, reason)) {
    const bool is_number = reason.find("multiple") != std::string::npos;
    return expect_error(is_number ? Status::kInvalidArgument : Status::kUnsupported, reason, plan_it);
  }
  const LaunchPlan plan = plan_it();
  Map found;
  for (const auto& [name, value] : plan.options.variables) {
    EXPECT_EQ(found.count(name), 0U) << name;
    found[name] = value;
  }
  apply_differences(file, plan, expected);
  if (expected.count("PYTHONPATH") != 0) expected["PYTHONPATH"] = std::filesystem::current_path().string();
  EXPECT_EQ(found, expected);
  EXPECT_EQ(plan.options.program, (std::vector<std::string>{"python3", "train.py", "--epochs", "3"}));
  if (const Json* const arguments = json_member(launch, "torch_arguments")) {
    const std::string local = std::to_string(plan.options.local_processes());
    EXPECT_EQ(json_text(*arguments, "nproc_per_node", local), local);
  }
  if (!port.empty() && port != "29500") {
    EXPECT_EQ(std::to_string(plan.options.main_process_port.value_or(0)), port);
  }
}

TEST(LaunchPlan, ForEachFileAndCommandLineTheRanksGetWhatTheReferenceGivesThem) {
  const std::string path = fixtures() + "expected.json";
  const Json expected = parse_json(RegularFile(path).read(), path);
  const CleanEnvironment environment({{"PATH", "/usr/bin"}, {"HOME", "/home/user"}, {"OMP_NUM_THREADS", "2"}});
  size_t launches = 0;
  for (const Json& one : *json_member(expected, "cases")->items()) {
    const Json* const found = json_member(*json_member(one, "expected"), "launches");
    if (found == nullptr) continue;
    for (const Json& launch : *found->items()) {
      expect_launch(json_text(*json_member(one, "input"), "file", ""), launch);
      ++launches;
    }
  }
  EXPECT_EQ(launches, 160U);
}

Map variables_of(const LaunchPlan& plan) { return {plan.options.variables.begin(), plan.options.variables.end()}; }

PlannedSetting setting_of(const LaunchPlan& plan, const std::string& name) {
  for (const auto& [found, setting] : plan.settings)
    if (found == name) return setting;
  return {};
}

constexpr const char* kFile =
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 4\nfsdp_config:\n  fsdp_offload_params: true\n"
    "  fsdp_version: 2\n";

TEST(LaunchPlan, TheCommandLineWinsThenTheEnvironmentThenTheFile) {
  const CleanEnvironment environment({{"FSDP_OFFLOAD_PARAMS", "false"}, {"HOME", "/nowhere"}});
  const WrittenFile file(kFile);
  const LaunchPlan plan =
      plan_launch({{"config_file", file.path()}, {"mixed_precision", "no"}, {"fsdp_version", "1"}}, {"./program"});
  EXPECT_EQ(setting_of(plan, "mixed_precision").source, "command line");
  EXPECT_EQ(setting_of(plan, "fsdp_offload_params").source, "FSDP_OFFLOAD_PARAMS");
  EXPECT_EQ(setting_of(plan, "num_processes").source, file.path() + ":3");
  EXPECT_EQ(setting_of(plan, "use_fsdp").source, file.path() + ":1");
  EXPECT_EQ(setting_of(plan, "fsdp_min_num_params").source, "default");
  const Map variables = variables_of(plan);
  EXPECT_EQ(variables.at("ACCELERATE_MIXED_PRECISION"), "no");
  EXPECT_EQ(variables.at("FSDP_VERSION"), "1");
  EXPECT_EQ(variables.count("FSDP_OFFLOAD_PARAMS"), 0U);
  EXPECT_EQ(plan.options.num_processes, 4);
}

TEST(LaunchPlan, WithoutAFileTheRanksGetOnlyWhatIsAskedFor) {
  const CleanEnvironment environment(kNowhere);
  EXPECT_TRUE(plan_launch({}, {"./program"}).options.variables.empty());
  const Map variables =
      variables_of(plan_launch({{"parallelism_config_tp_size", "2"}, {"cpu", "true"}}, {"./program"}));
  const Map expected = {{"PARALLELISM_CONFIG_TP_SIZE", "2"},
                        {"ACCELERATE_USE_CPU", "True"},
                        {"KMP_AFFINITY", "granularity=fine,compact,1,0"},
                        {"KMP_BLOCKTIME", "1"}};
  EXPECT_EQ(variables, expected);
}

TEST(LaunchPlan, TheRanksGetHowModelsAreSplit) {
  const CleanEnvironment environment(kNowhere);
  const Map variables = variables_of(plan_launch({{"use_parallelism_config", "true"},
                                                  {"parallelism_config_sp_size", "2"},
                                                  {"parallelism_config_sp_seq_length_is_variable", "False"},
                                                  {"parallelism_config_tp_plan", "none"},
                                                  {"parallelism_config_tp_sequence_parallel", "yes"},
                                                  {"cpu", "true"}},
                                                 {"./program"}));
  const Map expected = {{"ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
                        {"PARALLELISM_CONFIG_SP_SIZE", "2"},
                        {"PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE", "False"},
                        {"PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION", "sdpa"},
                        {"PARALLELISM_CONFIG_TP_PLAN", "none"},
                        {"PARALLELISM_CONFIG_TP_SEQUENCE_PARALLEL", "true"}};
  for (const auto& [name, value] : expected)
    EXPECT_EQ(variables.count(name) != 0 ? variables.at(name) : "", value) << name;
  EXPECT_EQ(variables.count("PARALLELISM_CONFIG_TP_VERIFY_GRADIENTS"), 0U);
}

TEST(LaunchPlan, TheFileOfAccelConfigIsReadUnlessTheCpuIsAskedFor) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("accel_home_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "accelerate");
  std::ofstream(folder / "accelerate" / "default_config.yaml") << "distributed_type: 'NO'\nmixed_precision: bf16\n";
  const CleanEnvironment environment({{"HF_HOME", folder.string()}});
  EXPECT_EQ(variables_of(plan_launch({}, {"p"})).at("ACCELERATE_MIXED_PRECISION"), "bf16");
  EXPECT_EQ(variables_of(plan_launch({{"cpu", "true"}}, {"p"})).count("ACCELERATE_MIXED_PRECISION"), 0U);
  std::filesystem::remove_all(folder);
}

TEST(LaunchPlan, AFileWithSettingsOfTheRanksAloneIsForThemToRead) {
  const WrittenFile file("mixed_precision: bf16\ntimeout_ms: 1000\n");
  const CleanEnvironment environment({{"ACCELERATE_CONFIG_FILE", file.path()}, {"HOME", "/nowhere"}});
  EXPECT_TRUE(plan_launch({}, {"./program"}).options.variables.empty());
  const WrittenFile both(std::string(kFile) + "ddp:\n  bucket_cap_mb: 50\n");
  const CleanEnvironment without(kNowhere);
  EXPECT_EQ(variables_of(plan_launch({{"config_file", both.path()}}, {"p"})).at("ACCELERATE_CONFIG_FILE"), both.path());
}

TEST(LaunchPlan, MegatronsSettingsBecomeVariables) {
  const CleanEnvironment environment(kNowhere);
  const Map passed = variables_of(plan_launch({{"use_megatron_lm", "true"},
                                               {"cpu", "true"},
                                               {"megatron_lm_tp_degree", "2"},
                                               {"megatron_lm_sequence_parallelism", "yes"},
                                               {"megatron_lm_context_parallel_size", "4"}},
                                              {"p"}));
  const Map expected = {{"ACCELERATE_USE_MEGATRON_LM", "true"},       {"MEGATRON_LM_TP_DEGREE", "2"},
                        {"MEGATRON_LM_SEQUENCE_PARALLELISM", "True"}, {"MEGATRON_LM_CONTEXT_PARALLEL_SIZE", "4"},
                        {"MEGATRON_LM_GRADIENT_CLIPPING", "1.0"},     {"MEGATRON_LM_NO_SAVE_OPTIM", "False"}};
  for (const auto& [name, value] : expected) EXPECT_EQ(passed.count(name) != 0 ? passed.at(name) : "", value) << name;
  EXPECT_EQ(passed.count("MEGATRON_LM_NUM_MICRO_BATCHES"), 0U);
  for (const auto& [name, value] : variables_of(plan_launch({{"megatron_lm_tp_degree", "2"}}, {"p"})))
    EXPECT_TRUE(name.rfind("MEGATRON_LM_", 0) != 0 || name == "MEGATRON_LM_TP_DEGREE") << name;
}

TEST(LaunchPlan, RanksGetTheRecipeOfFp8) {
  const CleanEnvironment environment(kNowhere);
  const auto passed = [](GivenOptions given) {
    Map variables;
    for (const auto& [name, value] : variables_of(plan_launch(given, {"p"})))
      if (name.rfind("ACCELERATE_FP8_", 0) == 0) variables[name.substr(15)] = value;
    return variables;
  };
  const Map of_te = passed({{"mixed_precision", "fp8"},
                            {"fp8_backend", "te"},
                            {"fp8_amax_history_len", "16"},
                            {"fp8_use_mxfp8_block_scaling", "true"},
                            {"fp8_override_linear_precision", "yes,no,1"}});
  const Map expected = {{"BACKEND", "TE"},
                        {"AMAX_HISTORY_LEN", "16"},
                        {"AMAX_COMPUTE_ALGO", "most_recent"},
                        {"FORMAT", "HYBRID"},
                        {"MARGIN", "0"},
                        {"INTERVAL", "1"},
                        {"OPT_LEVEL", "O2"},
                        {"OVERRIDE_FPROP", "True"},
                        {"OVERRIDE_DGRAD", "False"},
                        {"OVERRIDE_WGRAD", "True"},
                        {"USE_AUTOCAST_DURING_EVAL", "False"},
                        {"USE_MXFP8_BLOCK_SCALING", "True"}};
  EXPECT_EQ(of_te, expected);
  const Map of_ao = passed({{"mixed_precision", "fp8"}, {"fp8_pad_inner_dim", "no"}});
  EXPECT_EQ(of_ao.at("PAD_INNER_DIM"), "False");
  EXPECT_EQ(of_ao.at("ENABLE_FSDP_FLOAT8_ALL_GATHER"), "True");
  EXPECT_EQ(of_ao.count("BACKEND"), 0U);
  EXPECT_EQ(passed({{"mixed_precision", "bf16"}}), Map());
}

TEST(LaunchPlan, CompilationBecomesVariables) {
  const CleanEnvironment environment(kNowhere);
  const Map passed = variables_of(plan_launch({{"cpu", "true"},
                                               {"dynamo_backend", "inductor"},
                                               {"dynamo_mode", "max-autotune"},
                                               {"dynamo_use_regional_compilation", "true"}},
                                              {"p"}));
  const Map expected = {{"ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"},
                        {"ACCELERATE_DYNAMO_MODE", "max-autotune"},
                        {"ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "True"}};
  for (const auto& [name, value] : expected) EXPECT_EQ(passed.count(name) != 0 ? passed.at(name) : "", value) << name;
  EXPECT_TRUE(plan_launch({{"dynamo_backend", "inductor"}, {"dynamo_use_fullgraph", "true"}}, {"p"}).notes.empty());
}

TEST(LaunchPlan, WhatCannotBeIsRefused) {
  const CleanEnvironment environment(kNowhere);
  const auto refuse = [](Status status, const std::string& message, const GivenOptions& given) {
    expect_error(status, message, [&] { plan_launch(given, {"./program"}); });
  };
  const auto wrong = Status::kInvalidArgument;
  refuse(wrong, "--cpu and --use-fsdp are both given", {{"cpu", "true"}, {"use_fsdp", "true"}});
  refuse(wrong, "--multi-gpu and --use-deepspeed are both given", {{"multi_gpu", "yes"}, {"use_deepspeed", "1"}});
  refuse(wrong, "--num-processes is 1; expected at least 2", {{"multi_gpu", "true"}, {"num_processes", "1"}});
  refuse(wrong, "--num-processes is '0'", {{"num_processes", "0"}});
  refuse(wrong, "--zero-stage is '4'; expected an integer from 0 to 3", {{"zero_stage", "4"}});
  refuse(wrong, "--fsdp-offload-params is 'maybe'; expected yes or no", {{"fsdp_offload_params", "maybe"}});
  refuse(wrong, "--fsdp-state-dict-type is 'some'; expected one of", {{"fsdp_state_dict_type", "some"}});
  refuse(wrong, "only rank 0 would have weights", {{"use_fsdp", "true"}, {"fsdp_sync_module_states", "false"}});
  const auto refuse_products = [&](const char* products) {
    refuse(wrong,
           std::string("--fp8-override-linear-precision is '") + products + "'; expected yes or no for the forward",
           {{"mixed_precision", "fp8"}, {"fp8_override_linear_precision", products}});
  };
  for (const char* const products : {"yes", "yes,no", "yes,no,maybe", "no,no,no,no"}) refuse_products(products);
  refuse(wrong, "--fp8-margin is '33'; expected an integer from 0 to 32", {{"fp8_margin", "33"}});
  refuse(wrong, "--fp8-format is 'E3M4'; expected one of", {{"fp8_format", "E3M4"}});
  refuse(Status::kUnsupported, "asks for TPUs", {{"tpu", "true"}});
  refuse(wrong, "--megatron-lm-tp-degree is '0'", {{"megatron_lm_tp_degree", "0"}});
  refuse(wrong, "--dynamo-backend is 'gcc'; expected one of no, eager, ", {{"dynamo_backend", "gcc"}});
  refuse(Status::kNotFound, "missing.yaml", {{"config_file", "missing.yaml"}});
  const WrittenFile of_sagemaker(
      "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\nec2_instance_type: a\n"
      "iam_role_name: b\nregion: c\nprofile: d\n");
  refuse(Status::kUnsupported, "nothing is started on SageMaker", {{"config_file", of_sagemaker.path()}});
}

TEST(LaunchPlan, WhatHasNoEffectIsSaid) {
  const CleanEnvironment environment(kNowhere);
  const auto notes = [](const GivenOptions& given) { return plan_launch(given, {"./program"}).notes; };
  using Notes = std::vector<std::string>;
  EXPECT_EQ(notes({{"mixed_precision", "bf16"}, {"num_processes", "2"}}), Notes());
  EXPECT_EQ(notes({{"fp8_margin", "1"}}), Notes{"--fp8-margin has no effect without --mixed-precision fp8"});
  EXPECT_EQ(notes({{"fp8_margin", "1"}, {"mixed_precision", "FP8"}}), Notes());
  EXPECT_EQ(notes({{"zero_stage", "3"}}), Notes{"--zero-stage has no effect without --use-deepspeed"});
  EXPECT_EQ(notes({{"use_deepspeed", "true"}, {"zero_stage", "3"}}), Notes());
  EXPECT_EQ(notes({{"megatron_lm_pp_degree", "2"}}),
            Notes{"--megatron-lm-pp-degree has no effect without --use-megatron-lm"});
  const WrittenFile file(kFile);
  EXPECT_EQ(notes({{"config_file", file.path()}, {"cpu", "true"}}),
            Notes{"--cpu is given: distributed_type of " + file.path() + ":1 has no effect"});
}

TEST(LaunchPlan, OneDryRunHasEachOptionOnce) {
  std::map<std::string, int> names;
  for (const LaunchOption& option : launch_options()) {
    ++names[option.field.name];
    EXPECT_EQ(find_launch_option(option.field.name), &option);
  }
  for (const auto& [name, count] : names) EXPECT_EQ(count, 1) << name;
  EXPECT_EQ(find_launch_option("no_such_option"), nullptr);
  EXPECT_EQ(find_launch_option("cpu_affinity"), find_launch_option("enable_cpu_affinity"));
}

}  // namespace launch_plan_test
}  // namespace accel::launch
