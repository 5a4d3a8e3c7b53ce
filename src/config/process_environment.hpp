// This process's place in the job, as torchrun, MPI (Open MPI, MPICH/PMI, MVAPICH) and Slurm say it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/setting.hpp"

namespace accel {

struct ProcessOptions {
  std::optional<int64_t> process_index, num_processes, local_process_index, local_num_processes;
  std::optional<std::string> main_process_ip;
  std::optional<int64_t> main_process_port;
};

struct ProcessEnvironment {
  Setting<int64_t> process_index, num_processes, local_process_index, local_num_processes;
  Setting<std::string> main_process_ip;
  Setting<int64_t> main_process_port;
  bool agent_store = false;  // torchrun itself serves the store, so rank 0 must not
  int64_t restart_count = 0;
  std::string job_token;  // ACCEL_JOB_TOKEN: what the ranks of one job have in common
};

// Also checks that the numbers fit together; several hosts without an address are an error.
ProcessEnvironment resolve_process_environment(const ProcessOptions& options);

}  // namespace accel
