// SPDX-License-Identifier: Apache-2.0
// Subgroups: communicators of a part of another one's ranks, formed through its store.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

// Called by the members only, with the same ranks of `parent`, in the order of their ranks in the new group.
std::shared_ptr<Communicator> create_group(Communicator& parent, const std::vector<int64_t>& ranks);

// Called by all ranks; those of one color form a group, ordered by key and then by rank.
std::shared_ptr<Communicator> split_group(Communicator& parent, int32_t color, int32_t key);

// After a failure: leaves `parent` and forms a group of the ranks that call this within `wait`.
std::shared_ptr<Communicator> shrink_group(Communicator& parent, std::chrono::milliseconds wait);

}  // namespace accel::comm
