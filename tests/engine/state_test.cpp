// SPDX-License-Identifier: Apache-2.0
#include "state/state.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/current_call.hpp"
#include "base/error.hpp"
#include "config/generated/choices/context_method.hpp"
#include "config/generated/choices/cpu_kernels.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/ddp.hpp"
#include "config/generated/settings/prepare/grad_scaler.hpp"
#include "config/generated/settings/state/state.hpp"
#include "config/precedence.hpp"
#include "config/rank_info.hpp"
#include "config/state_settings.hpp"
#include "kernels/compute_policy.hpp"
#include "precision/grad_scaler.hpp"
#include "state/split.hpp"

namespace accel {
namespace state_test {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Sets variables for one test; others of the job's names are taken away.
class StateEnvironment {
 public:
  explicit StateEnvironment(const Variables& variables) {
    for (const char* name : kNames)
      if (const char* value = std::getenv(name)) former_.emplace_back(name, value);
    clear();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~StateEnvironment() {
    clear();
    for (const auto& [name, value] : former_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static void clear() {
    for (const char* name : kNames) unsetenv(name);
  }
  static constexpr const char* kNames[] = {"ACCELERATE_USE_FSDP",
                                           "ACCELERATE_USE_DEEPSPEED",
                                           "ACCELERATE_USE_MEGATRON_LM",
                                           "PARALLELISM_CONFIG_SP_SIZE",
                                           "PARALLELISM_CONFIG_CP_SIZE",
                                           "PARALLELISM_CONFIG_TP_SIZE",
                                           "ACCELERATE_DYNAMO_BACKEND",
                                           "FSDP_SHARDING_STRATEGY",
                                           "RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "MV2_COMM_WORLD_RANK",
                                           "MV2_COMM_WORLD_SIZE",
                                           "SLURM_PROCID",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_LOCALID",
                                           "SLURM_NTASKS_PER_NODE",
                                           "ACCELERATE_USE_CPU",
                                           "ACCELERATE_MIXED_PRECISION",
                                           "ACCELERATE_TORCH_DEVICE",
                                           "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
                                           "ACCELERATE_DEBUG_MODE",
                                           "ACCEL_CPU_MEMORY_KEPT",
                                           "ACCEL_TIMEOUT_MS",
                                           "ACCELERATE_CONFIG_FILE"};
  std::vector<std::pair<std::string, std::string>> former_;
};

std::string refusal(const std::function<void()>& call, Status status) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.message();
    return error.message();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

StateSettings resolved_place() {
  StateSettings settings;
  resolve_settings(settings);
  resolve_rank_info(settings);
  return settings;
}

TEST(StateProcess, RanksComeFromEveryLauncher) {
  const std::vector<std::vector<std::pair<std::string, std::string>>> launchers = {
      {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}},
      {{"OMPI_COMM_WORLD_RANK", "5"},
       {"OMPI_COMM_WORLD_SIZE", "8"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
       {"MASTER_ADDR", "h"}},
      {{"SLURM_PROCID", "5"},
       {"SLURM_STEP_NUM_TASKS", "8"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_NTASKS_PER_NODE", "4"},
       {"MASTER_ADDR", "h"}},
  };
  for (const auto& variables : launchers) {
    SCOPED_TRACE(variables[0].first);
    const StateEnvironment environment(variables);
    const StateSettings process = resolved_place();
    EXPECT_EQ(*process.process_index, 5);
    EXPECT_EQ(*process.num_processes, 8);
    EXPECT_EQ(*process.local_process_index, 1);
    EXPECT_EQ(*process.local_num_processes, 4);
    EXPECT_EQ(process.process_index.source, variables[0].first);
  }
}

TEST(StateProcess, PmiAndMvapichNamesCountInTheReferencesOrder) {
  const StateEnvironment environment(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MV2_COMM_WORLD_RANK", "3"}, {"MV2_COMM_WORLD_SIZE", "4"}});
  const StateSettings process = resolved_place();
  EXPECT_EQ(*process.process_index, 1);
  EXPECT_EQ(*process.num_processes, 2);
}

TEST(StateProcess, CallsWinOverTheEnvironment) {
  const StateEnvironment environment({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}});
  StateSettings process;
  process.process_index = 2;
  process.num_processes = 3;
  resolve_rank_info(process);
  EXPECT_EQ(*process.process_index, 2);
  EXPECT_EQ(*process.local_process_index, 2);
  EXPECT_EQ(process.process_index.source, "call");
}

TEST(StateProcess, ContradictionsAreNamed) {
  {
    const StateEnvironment environment({{"RANK", "4"}, {"WORLD_SIZE", "2"}});
    EXPECT_NE(refusal([] { resolved_place(); }, Status::kInvalidArgument).find("RANK"), std::string::npos);
  }
  {
    const StateEnvironment environment({{"RANK", "one"}, {"WORLD_SIZE", "2"}});
    EXPECT_NE(refusal([] { resolved_place(); }, Status::kInvalidArgument).find("'one'"), std::string::npos);
  }
  {
    const StateEnvironment environment(
        {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}});
    EXPECT_NE(refusal([] { resolved_place(); }, Status::kInvalidArgument).find("MASTER_ADDR"), std::string::npos);
  }
}

TEST(StateSettings, PrecedenceAndSources) {
  const StateEnvironment environment(
      {{"ACCELERATE_MIXED_PRECISION", "bf16"}, {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"}});
  StateSettings options;
  options.cpu = true;
  options.gradient_accumulation_steps = 2;
  const state::State made(options);
  EXPECT_EQ(made.settings().mixed_precision.value, Precision::kBf16);
  EXPECT_EQ(made.gradient_state()->settings().num_steps, 2);
  const std::string text = made.describe();
  EXPECT_NE(text.find("mixed_precision = bf16 (ACCELERATE_MIXED_PRECISION)"), std::string::npos) << text;
  EXPECT_NE(text.find("gradient_accumulation_steps = 2 (call)"), std::string::npos) << text;
  // Every field of the struct is told, also those that nobody gave.
  for (const OptionField& field : option_tables::state_options)
    if (field.kind != OptionKind::kReserved) {
      EXPECT_NE(("\n" + text).find("\n" + std::string(field.name) + " = "), std::string::npos) << field.name;
    }
}

TEST(StateSettings, ValuesOutOfTheirRangeNameTheirSource) {
  const StateEnvironment environment({});
  const auto refused = [](const char* variable, const char* value, const std::string& line) {
    setenv(variable, value, 1);
    EXPECT_EQ(refusal(
                  [] {
                    StateSettings settings;
                    resolve_settings(settings);
                  },
                  Status::kInvalidArgument),
              line);
    unsetenv(variable);
  };
  refused("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "0",
          "gradient_accumulation_steps is '0' (from ACCELERATE_GRADIENT_ACCUMULATION_STEPS); expected an integer at "
          "least 1");
  refused("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "two",
          "gradient_accumulation_steps is 'two' (from ACCELERATE_GRADIENT_ACCUMULATION_STEPS); expected an integer at "
          "least 1");
  refused("ACCELERATE_MIXED_PRECISION", "fp17",
          "mixed_precision is 'fp17' (from ACCELERATE_MIXED_PRECISION); expected one of no, fp16, bf16, fp8");
  refused("ACCELERATE_USE_CPU", "perhaps", "cpu is 'perhaps' (from ACCELERATE_USE_CPU); expected yes or no");
  refused("ACCEL_CPU_MEMORY_KEPT", "-1",
          "cpu_memory_kept is '-1' (from ACCEL_CPU_MEMORY_KEPT); expected an integer at least 0");
  refused("MASTER_PORT", "70000",
          "main_process_port is '70000' (from MASTER_PORT); expected an integer from 0 to 65535");
}

// A configuration file for one test; each has a name of its own, for a file is read once.
class WrittenConfiguration {
 public:
  explicit WrittenConfiguration(const std::string& content) {
    static int number = 0;
    const std::string name = "accel_config_" + std::to_string(getpid()) + "_" + std::to_string(number++) + ".yaml";
    path_ = (std::filesystem::temp_directory_path() / name).string();
    std::ofstream(path_) << content;
    setenv("ACCELERATE_CONFIG_FILE", path_.c_str(), 1);
  }
  ~WrittenConfiguration() {
    unsetenv("ACCELERATE_CONFIG_FILE");
    std::filesystem::remove(path_);
  }
  std::string line(int number) const { return path_ + ":" + std::to_string(number); }

 private:
  std::string path_;
};

TEST(StateSettings, AConfigurationFileStandsBetweenTheEnvironmentAndTheDefaults) {
  const StateEnvironment environment({{"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"}, {"MASTER_PORT", "29501"}});
  const WrittenConfiguration file(
      "# of a job\n"
      "mixed_precision: bf16\n"
      "gradient_accumulation_steps: 8\n"
      "timeout_ms: 7000\n"
      "cpu: true\n"
      "num_threads: ~\n"
      "ddp:\n"
      "  bucket_cap_mb: 12.5\n"
      "  find_unused_parameters: yes\n");
  StateSettings options;
  options.timeout_ms = 6000;
  const state::State made(options);
  EXPECT_EQ(made.settings().mixed_precision.value, Precision::kBf16);
  const std::string text = made.describe();
  EXPECT_NE(text.find("mixed_precision = bf16 (" + file.line(2) + ")"), std::string::npos) << text;
  EXPECT_NE(text.find("gradient_accumulation_steps = 4 (ACCELERATE_GRADIENT_ACCUMULATION_STEPS)"), std::string::npos);
  EXPECT_NE(text.find("timeout_ms = 6000 (call)"), std::string::npos);
  EXPECT_NE(text.find("cpu = yes (" + file.line(5) + ")"), std::string::npos);
  EXPECT_NE(text.find("debug = no (default)"), std::string::npos);

  DdpSettings ddp;
  ddp.bucket_cap_mb = 3;
  resolve_settings(ddp);
  EXPECT_EQ(ddp.bucket_cap_mb, 3);
  EXPECT_TRUE(ddp.find_unused_parameters);
  EXPECT_EQ(ddp.find_unused_parameters.source, file.line(9));
}

TEST(StateSettings, AConfigurationFileOfJson) {
  const StateEnvironment environment({});
  const WrittenConfiguration file("{\"mixed_precision\": \"fp16\",\n \"grad_scaler\": {\"init_scale\": 1024}}\n");
  EXPECT_EQ(resolve_state_settings({}).mixed_precision, Precision::kFp16);
  GradScalerSettings scaler;
  resolve_settings(scaler);
  EXPECT_EQ(scaler.init_scale, 1024);
  EXPECT_EQ(scaler.init_scale.source, file.line(2));
}

TEST(StateSettings, AConfigurationFileWithoutAnythingSaysNothing) {
  const StateEnvironment environment({});
  for (const char* const content : {"", "# nothing\n", "{}", "---\n{}\n"}) {
    const WrittenConfiguration file(content);
    EXPECT_EQ(resolve_state_settings({}).mixed_precision.source, "default") << content;
  }
}

TEST(StateSettings, AConfigurationFileThatIsWrongNamesItsLine) {
  const StateEnvironment environment({});
  const struct {
    const char* content;
    int line;
    const char* expected;
  } files[] = {
      {"timeout_ms: 0\n", 0, "timeout_ms is '0' (from "},
      {"debug: no\nmixed_precision: fp17\n", 0, "expected one of no, fp16, bf16, fp8"},
      {"cpu: yes\nmixed_precison: bf16\n", 2,
       ": there is no option 'mixed_precison'; the nearest name is mixed_precision"},
      {"ddq:\n  bucket_cap_mb: 1\n", 1, ": there is no option 'ddq'; the nearest name is ddp"},
      {"ddp:\n  bucket_cap: 1\n", 2, ": there is no option 'bucket_cap'; the nearest name is bucket_cap_mb"},
      {"cpu: yes\ncpu: no\n", 2, ": 'cpu' stands twice"},
      {"ddp: {}\nddp: {}\n", 2, ": 'ddp' stands twice"},
      {"cpu: [yes]\n", 1, ": expected one value"},
      {"ddp:\n  bucket_cap_mb: {a: 1}\n", 2, ": expected one value"},
      {"cpu: {a: 1}\n", 1, ": 'cpu' is an option; expected one value"},
      {"- cpu\n", 1, ": expected names with values"},
      {"cpu: yes\n---\ncpu: no\n", 2, ": expected one document"},
      {"cpu: yes\ndebug: *a\n", 2, ": '*a' stands for nothing"},
      {"cpu: \"yes\n", 2, "expected YAML or JSON"},
      {"\tcpu: yes\n", 1, "expected YAML or JSON"},
  };
  for (const auto& wrong : files) {
    const WrittenConfiguration file(wrong.content);
    const std::string message = refusal([] { resolve_state_settings({}); }, Status::kInvalidArgument);
    EXPECT_NE(message.find(wrong.expected), std::string::npos) << message;
    if (wrong.line > 0) {
      EXPECT_EQ(message.find(file.line(wrong.line)), 0) << message;
    }
  }
  setenv("ACCELERATE_CONFIG_FILE", "/no/such/file.yaml", 1);
  EXPECT_NE(refusal([] { resolve_state_settings({}); }, Status::kNotFound).find("/no/such/file.yaml"),
            std::string::npos);
}

TEST(StateSettings, WhatAProgramSetsIsCheckedByTheTable) {
  StateSettings settings;
  settings.timeout_ms = 0;
  EXPECT_EQ(refusal([&] { check_settings(settings); }, Status::kInvalidArgument),
            "timeout_ms is 0; expected at least 1");
}

TEST(StateSettings, ASecondTrainingHasTheJobsSettings) {
  const StateEnvironment environment({{"ACCELERATE_MIXED_PRECISION", "bf16"}, {"ACCELERATE_DEBUG_MODE", "1"}});
  StateSettings given;
  given.num_threads = 1;
  const StateSettings job = resolve_state_settings(given);
  StateSettings other;
  other.timeout_ms = job.timeout_ms.value.value_or(0) + 1;
  EXPECT_NE(refusal([&] { share_settings(job, other); }, Status::kInvalidArgument).find("timeout_ms differs"),
            std::string::npos);
  other = {};
  other.num_threads = 1;
  other.mixed_precision = Precision::kNo;
  const StateSettings shared = share_settings(job, other);
  EXPECT_EQ(shared.mixed_precision, Precision::kNo);
  EXPECT_EQ(*shared.num_threads, 1);
  EXPECT_EQ(*shared.process_index, 0);
}

TEST(StateSettings, TheTimeoutIsThatOfTheCallElseThatOfItsVariable) {
  const StateEnvironment environment({});
  StateSettings on_cpu;
  on_cpu.cpu = true;
  EXPECT_EQ(state::State(on_cpu).settings().timeout_ms.value, 1800000);
  setenv("ACCEL_TIMEOUT_MS", "5000", 1);
  EXPECT_EQ(resolve_state_settings({}).timeout_ms.value, 5000);
  EXPECT_EQ(resolve_state_settings({}).timeout_ms.source, "ACCEL_TIMEOUT_MS");
  StateSettings options;
  options.timeout_ms = 7;
  EXPECT_EQ(resolve_state_settings(options).timeout_ms.value, 7);
  setenv("ACCEL_TIMEOUT_MS", "0", 1);
  EXPECT_NE(refusal([] { resolve_state_settings({}); }, Status::kInvalidArgument).find("'0' (from ACCEL_TIMEOUT_MS)"),
            std::string::npos);
}

// Regression: the state that was made last decided which kernels calls without a state use.
TEST(StateSettings, AnotherStateDoesNotChangeCallsWithoutOne) {
  const StateEnvironment environment({});
  const auto make = [](CpuKernels choice) {
    StateSettings settings;
    settings.cpu = true;
    settings.cpu_kernels = choice;
    return state::State(settings);
  };
  const auto routes_products = [] {
    const CurrentCall call("accel_op_call");
    return kernels::compute_policy().use_tuned_kernels;
  };
  const state::State first = make(CpuKernels::kAuto);
  const bool before = routes_products();
  for (const CpuKernels choice : {CpuKernels::kDefault, CpuKernels::kAuto}) {
    const state::State other = make(choice);
    EXPECT_EQ(routes_products(), before);
  }
}

TEST(StateSettings, WhatCannotWorkIsRefusedWithTheReason) {
  const StateEnvironment environment({});
  StateSettings options;
  options.cpu = true;
  options.mixed_precision = Precision::kFp16;
  EXPECT_NE(refusal([&] { state::State made(options); }, Status::kUnsupported).find("use bf16"), std::string::npos);
  setenv("ACCELERATE_TORCH_DEVICE", "abacus", 1);
  EXPECT_NE(refusal([] { state::State made(StateSettings{}); }, Status::kInvalidArgument).find("'abacus'"),
            std::string::npos);
  setenv("ACCELERATE_TORCH_DEVICE", "xpu:1", 1);
  EXPECT_NE(refusal([] { state::State made(StateSettings{}); }, Status::kUnsupported)
                .find("torch_device is 'xpu:1' (from ACCELERATE_TORCH_DEVICE): device xpu:1 is not there: "),
            std::string::npos);
  setenv("ACCELERATE_TORCH_DEVICE", "cpu", 1);
  setenv("ACCELERATE_USE_CPU", "perhaps", 1);
  EXPECT_NE(refusal([] { state::State made(StateSettings{}); }, Status::kInvalidArgument).find("'perhaps'"),
            std::string::npos);
}

TEST(StateSettings, WhatTheEnvironmentAsksForAndIsNotThereIsRefusedByName) {
  for (const auto& [variable, value] : std::vector<std::pair<std::string, std::string>>{
           {"ACCELERATE_USE_MEGATRON_LM", "yes"},
           {"ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"},
       }) {
    const StateEnvironment environment({{variable, value}});
    const std::string message = refusal([] { state::State made(StateSettings{}); }, Status::kUnsupported);
    EXPECT_NE(message.find(variable + " is '" + value + "'"), std::string::npos) << message;
  }
  // What Accelerate's launcher sets for plain data parallelism.
  const StateEnvironment environment({{"ACCELERATE_USE_FSDP", "false"}, {"ACCELERATE_DYNAMO_BACKEND", "NO"}});
  EXPECT_NO_THROW(state::State made(StateSettings{}));
}

TEST(StateMesh, SizesComeFromTheEnvironmentAndFitTheRanks) {
  const StateEnvironment environment(Variables{{"PARALLELISM_CONFIG_TP_SIZE", "2"}});
  const std::string message = refusal([] { state::State made(StateSettings{}); }, Status::kInvalidArgument);
  EXPECT_NE(message.find("1 (pipeline) x 1 (replicate) x 1 (shard) x 1 (context) x 2 (tensor) and there is 1 rank"),
            std::string::npos)
      << message;
  StateSettings settings;
  settings.tensor_parallel_size = 1;
  const state::State made(settings);
  EXPECT_EQ(made.groups().mesh()->size("tensor"), 1);
  EXPECT_EQ(made.groups().data_parallel(), made.communicator());
  EXPECT_NE(made.describe().find("mesh = pipeline 1, replicate 1, shard 1, context 1, tensor 1; this rank is at 0"),
            std::string::npos);
  EXPECT_NE(made.describe().find("tensor_parallel_size = 1 (call)"), std::string::npos);
}

TEST(StateMesh, SequencesAreSharedInOneOfTwoWays) {
  const StateEnvironment environment(Variables{{"PARALLELISM_CONFIG_SP_SIZE", "2"}});
  const StateSettings resolved = resolve_state_settings({});
  EXPECT_EQ(resolved.context_parallel_size, 2);
  EXPECT_EQ(resolved.context_parallel_size.source, "PARALLELISM_CONFIG_SP_SIZE");
  EXPECT_EQ(default_context_method(resolved), ContextMethod::kUlysses);
  StateSettings given;
  given.context_parallel_size = 3;
  EXPECT_EQ(resolve_state_settings(given).context_parallel_size, 3);
  EXPECT_EQ(default_context_method(resolve_state_settings(given)), ContextMethod::kAllGather);
  setenv("PARALLELISM_CONFIG_CP_SIZE", "1", 1);
  EXPECT_EQ(resolve_state_settings({}).context_parallel_size, 2);
  setenv("PARALLELISM_CONFIG_CP_SIZE", "3", 1);
  EXPECT_NE(
      refusal([] { resolve_state_settings({}); }, Status::kInvalidArgument)
          .find("PARALLELISM_CONFIG_SP_SIZE is 2 and context_parallel_size is 3 (from PARALLELISM_CONFIG_CP_SIZE)"),
      std::string::npos);
  setenv("PARALLELISM_CONFIG_SP_SIZE", "0", 1);
  EXPECT_NE(refusal([] { resolve_state_settings({}); }, Status::kInvalidArgument).find("is '0'"), std::string::npos);
}

TEST(StateSplit, EveryThingGoesToOneRank) {
  for (int64_t length = 0; length < 20; length++)
    for (int size = 1; size < 7; size++) {
      int64_t next = 0;
      for (int rank = 0; rank < size; rank++) {
        const auto [begin, end] = state::split_range(length, rank, size);
        EXPECT_EQ(begin, next);
        EXPECT_LE(end - begin, (length + size - 1) / size);
        next = end;
      }
      EXPECT_EQ(next, length);
    }
}

TEST(StateGradient, AccumulationCountsAndEndsWithTheLoader) {
  state::AccumulationSettings settings;
  settings.num_steps = 3;
  state::GradientState gradient_state(settings);
  EXPECT_TRUE(gradient_state.sync_gradients());
  const auto progress = std::make_shared<state::LoaderProgress>();
  gradient_state.begin_loader(progress);
  std::vector<bool> syncs;
  for (int batch = 0; batch < 5; batch++) {
    progress->end_of_dataloader = batch == 4;
    gradient_state.begin_micro_batch();
    syncs.push_back(gradient_state.sync_gradients());
  }
  EXPECT_EQ(syncs, (std::vector<bool>{false, false, true, false, true}));
  gradient_state.end_loader(progress);
  EXPECT_FALSE(gradient_state.in_dataloader());
  EXPECT_EQ(gradient_state.remainder(), -1);
}

TEST(StateGradient, ALoaderThatIsGoneDropsOut) {
  state::GradientState gradient_state({});
  {
    const auto progress = std::make_shared<state::LoaderProgress>();
    progress->end_of_dataloader = true;
    gradient_state.begin_loader(progress);
    EXPECT_TRUE(gradient_state.end_of_dataloader());
  }
  EXPECT_FALSE(gradient_state.end_of_dataloader());
}

}  // namespace state_test
}  // namespace accel
