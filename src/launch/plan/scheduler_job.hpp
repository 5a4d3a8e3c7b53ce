// SPDX-License-Identifier: Apache-2.0
// The hosts of the job, as a batch system or an orchestrator describes them to this launcher.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::launch {

struct SchedulerJob {
  std::string source;  // "srun (Slurm)", for the user
  // Names of options of the launcher, and their values: num_machines and so on.
  std::vector<std::pair<const char*, std::string>> settings;
};

// From the variables of Slurm's srun, mpirun (Open MPI; Intel MPI, MPICH), and of Kubernetes' PyTorchJob and indexed
// Jobs such as those of a JobSet; nothing if none of them has several hosts. `asks_for_hosts`: the user has said that
// there are several, so that a number of this one is all that is needed. Status::kInvalidArgument if more than one
// launcher was started on this host.
std::optional<SchedulerJob> find_scheduler_job(bool asks_for_hosts);

// Hosts of an allocation of Slurm that a launcher without srun does not use; empty if there are none.
std::string unused_hosts();

// Whether torchrun, or another launcher of ranks, has given this process a place as a rank already. With one process
// the launcher becomes the program, which keeps that place; Status::kInvalidArgument with more.
bool is_rank_already(int num_processes);

}  // namespace accel::launch
