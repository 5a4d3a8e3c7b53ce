// SPDX-License-Identifier: Apache-2.0
// Programs that the launcher becomes: another launcher, or the one rank of a place that it has already.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/options.hpp"

namespace accel::launch {

// The command by which mpirun, or mpiexec, starts the ranks on the hosts of options.mpirun_hostfile: that of Open MPI,
// else of Intel MPI, MPICH and MVAPICH. Status::kNotFound if neither is in PATH.
std::vector<std::string> mpirun_command(const LaunchOptions& options);
// The variables of the options, and where the ranks meet.
Variables mpirun_variables(const LaunchOptions& options);

// Executes the command with the options' variables beside those of this process, and returns only by an Error.
[[noreturn]] void exec_program(const std::vector<std::string>& command, const Variables& variables);

}  // namespace accel::launch
