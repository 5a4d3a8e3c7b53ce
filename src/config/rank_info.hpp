// SPDX-License-Identifier: Apache-2.0
// The process's rank and the number of processes, from the environment of torchrun, MPI (Open MPI, MPICH/PMI, MVAPICH)
// or Slurm.
#pragma once

#include <cstdint>
#include <string>

namespace accel {

struct StateSettings;

// Further information of launchers.
struct LauncherEnvironment {
  bool agent_store = false;  // torchrun itself serves the store, so rank 0 must not
  int64_t restart_count = 0;
  std::string job_token;       // ACCEL_JOB_TOKEN: identifies the job
  bool fork_launched = false;  // FORK_LAUNCHED, which notebook launchers set
};

LauncherEnvironment launcher_environment();

// Sets process_index, num_processes, local_process_index and local_num_processes unless the call did. Checks that the
// numbers are consistent; several hosts without an address are an error.
void resolve_rank_info(StateSettings& settings);

}  // namespace accel
