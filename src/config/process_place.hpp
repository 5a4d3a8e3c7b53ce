// This process's place in the job, as torchrun, MPI (Open MPI, MPICH/PMI, MVAPICH) and Slurm say it.
#pragma once

#include <cstdint>
#include <string>

#include "config/generated/settings.hpp"

namespace accel {

// What launchers say beside the place.
struct LauncherEnvironment {
  bool agent_store = false;  // torchrun itself serves the store, so rank 0 must not
  int64_t restart_count = 0;
  std::string job_token;       // ACCEL_JOB_TOKEN: what the ranks of one job have in common
  bool fork_launched = false;  // FORK_LAUNCHED, which launchers of notebooks set
};

LauncherEnvironment launcher_environment();

// Gives the place its values where the program has not: afterwards process_index, num_processes, local_process_index
// and local_num_processes have some. Checks that the numbers fit together; several hosts without an address are an
// error.
void resolve_process_place(StateSettings& settings);

}  // namespace accel
