// SPDX-License-Identifier: Apache-2.0
// The command that starts a rank, from the options of the launch.
#pragma once

#include "launch/plan/host_ranks.hpp"
#include "launch/plan/options.hpp"
#include "launch/ranks/rank_process.hpp"

namespace accel::launch {

// Its log; "" if there is none.
std::string rank_log_file(const std::string& log_dir, int rank);

// `shown` is where the output of ranks is shown that the launcher reads.
RankCommand rank_command(const LaunchOptions& options, const HostRanks& host_ranks, int local_rank,
                         OutputRelays& shown);

}  // namespace accel::launch
