// SPDX-License-Identifier: Apache-2.0
#include "config/rank_info.hpp"

#include <initializer_list>
#include <optional>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "config/generated/settings/state/state.hpp"

namespace accel {
namespace {

using Names = std::initializer_list<const char*>;
using Number = Setting<std::optional<int64_t>>;

// The first of the variables that is set, or `otherwise`.
void fill(Number& number, Names variables, int64_t otherwise) {
  if (!number.is_default()) return;
  for (const char* const name : variables)
    if (const auto value = environment_integer(name)) {
      number.set(*value, name);
      return;
    }
  number.value = otherwise;
}

// An interactive shell of Slurm has SLURM_NTASKS too: only a step that srun started has SLURM_STEP_NUM_TASKS.
bool is_step_of_slurm() {
  return environment_integer("SLURM_STEP_NUM_TASKS").value_or(1) > 1 && environment_integer("SLURM_PROCID");
}

void check_place(const StateSettings& settings) {
  const int64_t rank = *settings.process_index, size = *settings.num_processes;
  const int64_t local_rank = *settings.local_process_index, local_size = *settings.local_num_processes;
  require(size >= 1, Status::kInvalidArgument, "the number of processes is ", size, " (from ",
          settings.num_processes.source, "); expected at least 1");
  require(rank >= 0 && rank < size, Status::kInvalidArgument, "the process index is ", rank, " (from ",
          settings.process_index.source, "); expected 0 to ", size - 1);
  require(local_size >= 1 && local_size <= size, Status::kInvalidArgument, "the number of local processes is ",
          local_size, " (from ", settings.local_num_processes.source, "); expected 1 to ", size);
  require(local_rank >= 0 && local_rank < local_size, Status::kInvalidArgument, "the local process index is ",
          local_rank, " (from ", settings.local_process_index.source, "); expected 0 to ", local_size - 1);
  require(!settings.main_process_ip.is_default() || local_size == size, Status::kInvalidArgument, local_size, " of ",
          size, " processes are on this host and MASTER_ADDR is not set; set it to the address of rank 0's host");
  require(settings.main_process_port >= 1, Status::kInvalidArgument, "the port of the main process is ",
          settings.main_process_port.value, " (from ", settings.main_process_port.source, "); expected 1 to 65535");
}

}  // namespace

LauncherEnvironment launcher_environment() {
  LauncherEnvironment result;
  result.agent_store = environment_flag("TORCHELASTIC_USE_AGENT_STORE").value_or(false);
  result.restart_count = environment_integer("TORCHELASTIC_RESTART_COUNT").value_or(0);
  result.job_token = environment_text("ACCEL_JOB_TOKEN").value_or("");
  result.fork_launched = environment_flag("FORK_LAUNCHED").value_or(false);
  return result;
}

// The order of names is Accelerate's: torchrun first, then the MPI launchers; Slurm comes last, since a job inside
// an allocation carries its variables even when another launcher started it.
void resolve_rank_info(StateSettings& settings) {
  const bool given_place = !settings.process_index.is_default() || !settings.num_processes.is_default();
  fill(settings.num_processes, {"WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"}, 1);
  if (settings.num_processes.is_default() && is_step_of_slurm()) {
    fill(settings.num_processes, {"SLURM_STEP_NUM_TASKS"}, 1);
    fill(settings.process_index, {"SLURM_PROCID"}, 0);
    fill(settings.local_process_index, {"SLURM_LOCALID"}, 0);
    fill(settings.local_num_processes, {"SLURM_NTASKS_PER_NODE"}, *settings.num_processes);
    return check_place(settings);
  }
  fill(settings.process_index, {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"}, 0);
  // Without information on hosts there is one: local numbers equal the global ones.
  fill(settings.local_process_index,
       given_place ? Names{}
                   : Names{"LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK"},
       *settings.process_index);
  fill(settings.local_num_processes,
       given_place
           ? Names{}
           : Names{"LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},
       *settings.num_processes);
  check_place(settings);
}

}  // namespace accel
