// SPDX-License-Identifier: Apache-2.0
// The ranks of this host in one attempt of a job.
#pragma once

#include <string>

namespace accel::launch {

struct HostRanks {
  int first_rank = 0;
  int local_processes = 1;
  int world_size = 1;
  int host_number = 0;
  int num_hosts = 1;
  std::string master_addr;  // the host of rank 0; empty: what MASTER_ADDR says, else this one
  int master_port = 0;      // at which the ranks meet
  int restart_count = 0;    // attempts before this one
  std::string token;        // identifies the attempt; empty: the ranks have the user's ACCEL_JOB_TOKEN, or none
};

}  // namespace accel::launch
