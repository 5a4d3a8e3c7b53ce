// SPDX-License-Identifier: Apache-2.0
// Accelerate's configuration files, read as its classes hold them.
#include "config/launch_configuration.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "expect_error.hpp"
#include "json/json.hpp"
#include "os/regular_file.hpp"
#include "written_file.hpp"

namespace accel {
namespace launch_configuration_test {

using tests::expect_error;
using tests::WrittenFile;

std::string fixtures() { return environment_text("ACCEL_PARITY_DIR").value_or(ACCEL_PARITY_FIXTURES) + "/configs/"; }

// Members in the order of their names, numbers by their value.
std::string sorted(const Json& value) {
  if (const Json::Items* const items = value.items()) {
    std::string list = "[";
    for (const Json& item : *items) list += sorted(item) + ",";
    return list + "]";
  }
  if (const Json::Members* const members = value.members()) {
    std::map<std::string, std::string> ordered;
    for (const auto& [name, member] : *members) ordered[name] = sorted(member);
    std::string map = "{";
    for (const auto& [name, member] : ordered) map += name + ":" + member + ",";
    return map + "}";
  }
  return value.digits() != nullptr ? std::to_string(*value.number()) : print_json(value);
}

TEST(LaunchConfiguration, EveryFileOfTheReferenceIsReadAsItReadsIt) {
  const std::string path = fixtures() + "expected.json";
  const Json expected = parse_json(RegularFile(path).read(), path);
  size_t read = 0;
  for (const Json& one : *json_member(expected, "cases")->items()) {
    const Json& outcome = *json_member(one, "expected");
    const Json* const parsed = json_member(outcome, "parsed");
    if (parsed == nullptr) continue;
    const std::string file = json_text(*json_member(one, "input"), "file", "");
    EXPECT_EQ(sorted(json_of(read_launch_configuration(fixtures() + file))), sorted(*parsed)) << file;
    ++read;
  }
  EXPECT_GE(read, 28u);
}

TEST(LaunchConfiguration, WhatTheReferenceRefusesIsRefusedWithMore) {
  expect_error(Status::kInvalidArgument,
               "broken_unknown_key.yaml:4: unknown names: 'favourite_colour' (line 4, the nearest is '",
               [] { read_launch_configuration(fixtures() + "broken_unknown_key.yaml"); });
  expect_error(Status::kInvalidArgument, "'zebra' (line 5, the nearest is '",
               [] { read_launch_configuration(fixtures() + "broken_unknown_key.yaml"); });
  expect_error(Status::kInvalidArgument, "broken_no_type.yaml has no distributed_type",
               [] { read_launch_configuration(fixtures() + "broken_no_type.yaml"); });
  expect_error(Status::kInvalidArgument, "distributed_type is 'MULTI_ABACUS'; expected one of NO, MULTI_CPU",
               [] { read_launch_configuration(fixtures() + "broken_type.json"); });
  expect_error(Status::kNotFound, "missing.yaml", [] { read_launch_configuration(fixtures() + "missing.yaml"); });
}

TEST(LaunchConfiguration, ValuesKnowTheirLines) {
  const WrittenFile file(
      "distributed_type: FSDP\n"
      "fsdp_config:\n"
      "  sharding_strategy: FULL_SHARD\n"
      "num_processes: '4'\n");
  const LaunchConfiguration read = read_launch_configuration(file.path());
  const auto* const strategy = read.find("fsdp_config", "fsdp_sharding_strategy");
  ASSERT_NE(strategy, nullptr) << "names may lack the prefix of their section";
  EXPECT_EQ(strategy->place, file.path() + ":3");
  EXPECT_EQ(*strategy->value.text(), "FULL_SHARD");
  EXPECT_EQ(read.find("", "num_processes")->value.integer(), 4);
  EXPECT_EQ(read.find("", "num_processes")->place, file.path() + ":4");
  EXPECT_TRUE(read.find("", "num_machines")->is_default());
  EXPECT_EQ(read.find("fsdp_config", "fsdp_version"), nullptr);
  EXPECT_EQ(read.find("", "fsdp_version"), nullptr);
}

TEST(LaunchConfiguration, PlainWordsAreTextWhereTextIsExpected) {
  const LaunchConfiguration read = parse_launch_configuration(
      "distributed_type: NO\nmixed_precision: no\ngpu_ids: 0\nuse_cpu: yes\nmain_process_port: 0x10\n", "job.yaml");
  EXPECT_EQ(*read.find("", "distributed_type")->value.text(), "NO");
  EXPECT_EQ(*read.find("", "mixed_precision")->value.text(), "no");
  EXPECT_EQ(*read.find("", "gpu_ids")->value.text(), "0");
  EXPECT_EQ(*read.find("", "use_cpu")->value.flag(), true);
  EXPECT_EQ(read.find("", "main_process_port")->value.integer(), 16);
}

TEST(LaunchConfiguration, NullIsWhatIsNotWritten) {
  const LaunchConfiguration read = parse_launch_configuration(
      "distributed_type: NO\ndebug: null\nrdzv_backend: ~\nnum_processes:\nfsdp_config: null\nfp16: ~\n", "job.yaml");
  EXPECT_EQ(*read.find("", "debug")->value.flag(), false);
  EXPECT_EQ(*read.find("", "rdzv_backend")->value.text(), "static");
  EXPECT_EQ(read.find("", "num_processes")->value.integer(), 1);
  EXPECT_TRUE(read.find("", "num_processes")->is_default());
}

TEST(LaunchConfiguration, OldNamesAreConverted) {
  const auto converted = [](const char* content) {
    return parse_launch_configuration(std::string("distributed_type: 'NO'\n") + content, "old.yaml");
  };
  EXPECT_EQ(*converted("fp16: true\n").find("", "mixed_precision")->value.text(), "fp16");
  EXPECT_EQ(converted("fp16: true\n").find("", "fp16"), nullptr);
  EXPECT_TRUE(converted("fp16: false\n").find("", "mixed_precision")->value.is_null());
  EXPECT_EQ(*converted("fp16: true\nmixed_precision: bf16\n").find("", "mixed_precision")->value.text(), "bf16");
  EXPECT_EQ(converted("dynamo_backend: 'NO'\n").find("dynamo_config", "dynamo_backend"), nullptr);
  EXPECT_EQ(converted("dynamo_backend: TVM\n").find("dynamo_config", "dynamo_backend")->place, "old.yaml:2");
  EXPECT_EQ(converted("ipex_config: {ipex: true}\n").find("", "ipex_config"), nullptr);
}

TEST(LaunchConfiguration, FilesForSageMaker) {
  const LaunchConfiguration read = parse_launch_configuration(
      "compute_environment: AMAZON_SAGEMAKER\n"
      "distributed_type: DATA_PARALLEL\n"
      "ec2_instance_type: ml.p3.16xlarge\n"
      "iam_role_name: role\n"
      "additional_args: {anything: [1, 2]}\n"
      "mixed_precision: bf16\n",
      "sage.yaml");
  EXPECT_TRUE(read.is_sagemaker);
  EXPECT_EQ(sorted(json_of(read)),
            "{additional_args:{anything:[1.000000,2.000000,],},base_job_name:\"accelerate-sagemaker-1\","
            "compute_environment:\"AMAZON_SAGEMAKER\",debug:false,distributed_type:\"DATA_PARALLEL\",dynamo_config:{},"
            "ec2_instance_type:\"ml.p3.16xlarge\",enable_cpu_affinity:false,gpu_ids:\"all\",iam_role_name:\"role\","
            "image_uri:null,mixed_precision:\"bf16\",num_machines:1.000000,profile:null,py_version:\"py38\","
            "pytorch_version:\"1.10.2\",region:\"us-east-1\",sagemaker_inputs_file:null,sagemaker_metrics_file:null,"
            "transformers_version:\"4.17.0\",use_cpu:false,}");
  expect_error(Status::kInvalidArgument, "has no iam_role_name", [] {
    parse_launch_configuration(
        "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\nec2_instance_type: ml.p3.16xlarge\n",
        "sage.yaml");
  });
  expect_error(Status::kInvalidArgument, "'fsdp_config'", [] {
    parse_launch_configuration("compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\nfsdp_config: {}\n",
                               "sage.yaml");
  });
}

TEST(LaunchConfiguration, OptionsOfTheLibraryStandBesideThoseOfTheLauncher) {
  const LaunchConfiguration read = parse_launch_configuration(
      "distributed_type: MULTI_CPU\nddp:\n  bucket_cap_mb: 12.5\ntimeout_ms: 7000\n", "job.yaml");
  ASSERT_EQ(read.own.size(), 2u);
  EXPECT_EQ(read.own[0].values.at(0).name, "timeout_ms");
  EXPECT_EQ(read.own[1].name, "ddp");
  EXPECT_EQ(read.own[1].values.at(0).place, "job.yaml:3");
}

TEST(LaunchConfiguration, WrongValuesNameTheirLineAndWhatWasExpected) {
  const struct {
    const char* content;
    const char* expected;
  } wrong[] = {
      {"num_processes: many\n", "job.yaml:2: num_processes is 'many'; expected an integer"},
      {"num_processes: 1.5\n", "job.yaml:2: num_processes is '1.5'; expected an integer"},
      {"num_processes: [1]\n", "job.yaml:2: num_processes is a list; expected one value"},
      {"num_machines: {a: 1}\n", "job.yaml:2: num_machines is a map; expected one value"},
      {"debug: perhaps\n", "job.yaml:2: debug is 'perhaps'; expected true or false"},
      {"mixed_precision: fp17\n", "job.yaml:2: mixed_precision is 'fp17'; expected one of no, fp16, bf16, fp8"},
      {"commands: ls\n", "job.yaml:2: commands is 'ls'; expected a list"},
      {"fsdp_config: yes\n", "job.yaml:2: fsdp_config is 'yes'; expected a section"},
      {"fsdp_config:\n  fsdp_version: 3\n", "job.yaml:3: fsdp_version is '3'; expected one of 1, 2"},
      {"fsdp_config:\n  fsdp_verson: 2\n", "'fsdp_verson' (line 3, the nearest is 'fsdp_version')"},
      {"fsdp_config:\n  fsdp_min_num_params: few\n", "fsdp_min_num_params is 'few'; expected a number"},
      {"num_processes: 2\nnum_processes: 3\n", "job.yaml:3: 'num_processes' stands twice, before at job.yaml:2"},
      {"compute_environment: MOON\n", "compute_environment is 'MOON'; expected one of LOCAL_MACHINE"},
  };
  for (const auto& one : wrong)
    expect_error(Status::kInvalidArgument, one.expected, [&one] {
      parse_launch_configuration(std::string("distributed_type: NO\n") + one.content, "job.yaml");
    });
  for (const char* const content : {"", "# nothing\n", "null\n"})
    expect_error(Status::kInvalidArgument, "job.yaml is empty",
                 [content] { parse_launch_configuration(content, "job.yaml"); });
  expect_error(Status::kInvalidArgument, "has no names with values",
               [] { parse_launch_configuration("- a\n", "job.yaml"); });
}

TEST(LaunchConfiguration, WhatIsNoFileIsRefused) {
  const std::string folder = std::filesystem::temp_directory_path().string();
  expect_error(Status::kIo, "is not a regular file", [&] { read_launch_configuration(folder); });
  expect_error(Status::kNotFound, "/no/such/file", [] { read_launch_configuration("/no/such/file"); });
  expect_error(Status::kIo, "is not a regular file", [] { read_launch_configuration("/dev/zero"); });
}

// Variables are restored by whoever runs the tests one by one; these are set for the one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name), former_(environment_text(name)) {
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { former_ ? setenv(name_, former_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> former_;
};

TEST(LaunchConfiguration, TheDefaultFileIsWhereTheReferenceHasIt) {
  const Variable home("HOME", "/home/user"), cache("XDG_CACHE_HOME", nullptr), hub("HF_HOME", nullptr);
  EXPECT_EQ(default_configuration_path(), "/home/user/.cache/huggingface/accelerate/default_config.yaml");
  const Variable other_cache("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(default_configuration_path(), "/cache/huggingface/accelerate/default_config.yaml");
  const Variable other_hub("HF_HOME", "~/hub");
  EXPECT_EQ(default_configuration_path(), "/home/user/hub/accelerate/default_config.yaml");
}

}  // namespace launch_configuration_test
}  // namespace accel
