// Communicators among a part of another one's ranks. They meet in its store.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

// Only the members call this, each with the same ranks of `parent`, in the order that they will have.
std::shared_ptr<Communicator> create_group(Communicator& parent, const std::vector<int64_t>& ranks);

// All ranks call this; those of one color form a group, ordered by key and then by rank.
std::shared_ptr<Communicator> split_group(Communicator& parent, int32_t color, int32_t key);

// After a failure: leaves `parent`, and forms a group of the ranks that come within `wait`.
std::shared_ptr<Communicator> shrink_group(Communicator& parent, std::chrono::milliseconds wait);

}  // namespace accel::comm
