// SPDX-License-Identifier: Apache-2.0
// What a launch would use, with sources and losers.
#include "launch/plan/launch_explanation.hpp"

#include <gtest/gtest.h>

#include <string>

#include "clean_environment.hpp"
#include "expect_error.hpp"
#include "json/json.hpp"
#include "written_file.hpp"

namespace accel::launch {
namespace launch_explanation_test {

using tests::CleanEnvironment;
using tests::WrittenFile;

const CleanEnvironment::Variables kNowhere = {{"HOME", "/nowhere"}};  // no file of `accel config`

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(LaunchExplanation, EachValueHasItsSourceAndWhatItWinsOver) {
  const CleanEnvironment environment({{"HOME", "/nowhere"}, {"ACCELERATE_MIXED_PRECISION", "bf16"}});
  const WrittenFile file(
      "distributed_type: FSDP\n"
      "mixed_precision: fp16\n"
      "num_processes: 4\n"
      "debug: true\n"
      "fsdp_config:\n"
      "  sharding_strategy: SHARD_GRAD_OP\n"
      "ddp:\n"
      "  bucket_cap_mb: 12.5\n");
  const std::string shown = describe_explanation(explain_launch(file.path()));
  EXPECT_TRUE(has_line(shown, "configuration: " + file.path())) << shown;
  EXPECT_TRUE(has_line(shown, "mixed_precision = bf16 (ACCELERATE_MIXED_PRECISION), over fp16 (" + file.path() + ":2)"))
      << shown;
  EXPECT_TRUE(has_line(shown, "num_processes = 4 (" + file.path() + ":3)")) << shown;
  EXPECT_TRUE(has_line(shown, "debug = true (" + file.path() + ":4), over false (default)")) << shown;
  EXPECT_TRUE(
      has_line(shown, "fsdp_sharding_strategy = SHARD_GRAD_OP (" + file.path() + ":6), over FULL_SHARD (default)"))
      << shown;
  EXPECT_TRUE(has_line(shown, "fsdp_version = 1 (default)")) << shown;
  EXPECT_TRUE(has_line(shown, "ddp.bucket_cap_mb = 12.5 (" + file.path() + ":8)")) << shown;
  EXPECT_EQ(shown.find("zero_stage"), std::string::npos) << "what is not turned on has no defaults here";
}

TEST(LaunchExplanation, WithoutAFileThereAreTheEnvironmentAndDefaults) {
  const CleanEnvironment environment({{"HOME", "/nowhere"}, {"CUDA_VISIBLE_DEVICES", ""}, {"ACCELERATE_USE_CPU", "1"}});
  const Json explanation = explain_launch("");
  EXPECT_EQ(json_member(explanation, "file"), nullptr);
  EXPECT_EQ(json_member(explanation, "problem"), nullptr);
  const std::string shown = describe_explanation(explanation);
  EXPECT_TRUE(has_line(shown, "configuration: none")) << shown;
  EXPECT_TRUE(has_line(shown, "num_processes = 1 (default)")) << shown;
  EXPECT_TRUE(has_line(shown, "cpu = 1 (ACCELERATE_USE_CPU), over false (default)")) << shown;
}

TEST(LaunchExplanation, WhyNothingWouldStartIsSaid) {
  const CleanEnvironment environment(kNowhere);
  const WrittenFile file("distributed_type: MULTI_GPU\nnum_processes: -1\nmain_process_port: 4000\n");
  const Json explanation = explain_launch(file.path());
  EXPECT_NE(json_text(explanation, "problem", "").find("expected --num-processes N"), std::string::npos);
  EXPECT_TRUE(has_line(describe_explanation(explanation), "main_process_port = 4000 (" + file.path() + ":3)"));
  tests::expect_error(Status::kNotFound, "/no/such/file", [] { explain_launch("/no/such/file"); });
}

TEST(LaunchExplanation, SecretsAreNotShown) {
  const CleanEnvironment environment(kNowhere);
  const WrittenFile file("distributed_type: 'NO'\nddp:\n  access_token: abc123\n");
  const Json explanation = explain_launch(file.path());
  EXPECT_EQ(print_json(explanation).find("abc123"), std::string::npos) << print_json(explanation);
  EXPECT_TRUE(has_line(describe_explanation(explanation), "ddp.access_token = (hidden) (" + file.path() + ":3)"));
}

}  // namespace launch_explanation_test
}  // namespace accel::launch
