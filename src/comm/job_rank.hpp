// SPDX-License-Identifier: Apache-2.0
// Job ranks: the numbers in the job that the ranks of a group have, by which errors name them.
#pragma once

#include <vector>

namespace accel::comm {

class Communicator;

int job_rank(const Communicator& group, int rank);
// One for each rank; empty where they are those in the group.
std::vector<int> job_ranks(const Communicator& group);

}  // namespace accel::comm
