// SPDX-License-Identifier: Apache-2.0
// Report after a mismatch: the call of each rank, exchanged through the store, which needs no collective.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace accel::comm {

// "rank 1 is in save_state #12, ranks 0, 2, 3 wait in reduce #12", the same on every rank. Empty when all are in the
// same call, or when a rank or the store does not answer in time. `number` identifies the collective in the group,
// `job_ranks` are the numbers by which ranks are named, or empty.
std::string report_calls(c10d::Store& store, int rank, int size, const std::vector<int>& job_ranks,
                         const std::string& number, const std::string& call, std::chrono::milliseconds timeout);

}  // namespace accel::comm
