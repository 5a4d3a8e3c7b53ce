// SPDX-License-Identifier: Apache-2.0
#include "config/state_settings.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "config/configuration_file.hpp"
#include "config/generated/choices/context_method.hpp"
#include "config/generated/choices/cpu_kernels.hpp"
#include "config/generated/choices/cpu_memory.hpp"
#include "config/generated/settings/state/state.hpp"
#include "config/option_text.hpp"
#include "config/precedence.hpp"
#include "config/rank_info.hpp"
#include "config/unsupported_environment.hpp"

namespace accel {
namespace {

// Settings that the first state of a job determines for all, besides the device.
constexpr std::string_view kOfTheJob[] = {"debug",
                                          "timeout_ms",
                                          "process_index",
                                          "num_processes",
                                          "local_process_index",
                                          "local_num_processes",
                                          "main_process_ip",
                                          "main_process_port",
                                          "num_threads",
                                          "cpu_kernels",
                                          "cpu_memory",
                                          "cpu_memory_kept",
                                          "torch_device",
                                          "device_plugins",
                                          "cpu_affinity",
                                          "embedded",
                                          "backend",
                                          "pipeline_parallel_size",
                                          "data_parallel_replicate_size",
                                          "data_parallel_shard_size",
                                          "context_parallel_size",
                                          "tensor_parallel_size",
                                          "expert_parallel_size"};

bool is_of_the_job(const OptionField& field) {
  return std::find(std::begin(kOfTheJob), std::end(kOfTheJob), field.name) != std::end(kOfTheJob);
}

constexpr int64_t kEmbeddedMemoryKept = int64_t{64} << 20;

// Defaults for a program with a loop of its own: what else would take its time, memory or processors.
void apply_embedded(StateSettings& settings) {
  if (!settings.embedded) return;
  const auto apply = [](auto& setting, auto value) {
    if (setting.is_default()) setting.set(value, "embedded");
  };
  if (!environment_text("OMP_NUM_THREADS")) apply(settings.num_threads, int64_t{1});
  apply(settings.cpu_kernels, CpuKernels::kDefault);
  apply(settings.cpu_memory, CpuMemory::kCached);
  apply(settings.cpu_memory_kept, kEmbeddedMemoryKept);
}

constexpr const char* kSequenceSize = "PARALLELISM_CONFIG_SP_SIZE";

// Ulysses and context parallelism share sequences in two ways, along one axis of the mesh.
void apply_sequence_parallel_size(StateSettings& settings) {
  const auto written = environment_text(kSequenceSize);
  if (!written || settings.context_parallel_size.source == "call") return;
  const OptionTable& table = StateSettings::table();
  const OptionField& field = *std::find_if(table.begin(), table.end(), [](const OptionField& one) {
    return one.name == std::string_view("context_parallel_size");
  });
  check_option_text(field, *written, field.name, kSequenceSize);
  const int64_t size = parse_integer_option(field, *written);
  const bool replaces_file = default_context_method(settings) == ContextMethod::kUlysses;
  if (size == 1 && !replaces_file) return;
  require(settings.context_parallel_size.value == 1 || replaces_file, Status::kInvalidArgument, kSequenceSize, " is ",
          size, " and context_parallel_size is ", settings.context_parallel_size.value, " (from ",
          settings.context_parallel_size.source, "), and both split sequences; expected one of them above 1");
  settings.context_parallel_size.set(size, kSequenceSize);
}

}  // namespace

ContextMethod default_context_method(const StateSettings& resolved) {
  const std::string& source = resolved.context_parallel_size.source;
  const ConfigurationFile* const file = ConfigurationFile::of_environment();
  const auto* const entry = file == nullptr ? nullptr : file->find(StateSettings::table(), "context_parallel_size");
  const bool is_of_file = entry != nullptr && entry->place == source && entry->name == "parallelism_config_sp_size";
  return is_of_file || source == kSequenceSize ? ContextMethod::kUlysses : ContextMethod::kAllGather;
}

StateSettings resolve_state_settings(StateSettings given) {
  refuse_unsupported_environment();
  resolve_settings(given);
  apply_sequence_parallel_size(given);
  apply_embedded(given);
  resolve_rank_info(given);
  return given;
}

StateSettings share_settings(const StateSettings& job, StateSettings given) {
  StateSettings::for_each(
      [](const OptionField& field, auto& setting, const auto& decided) {
        if (!is_of_the_job(field)) return;
        require(setting.is_default() || setting.value == decided.value, Status::kInvalidArgument, field.name,
                " differs from that of the job, which its first state decided; expected the same, or none");
        setting.set(decided.value, decided.source);
      },
      given, job);
  given.cpu.set(job.cpu.value, job.cpu.source);
  resolve_settings(given);
  return given;
}

}  // namespace accel
