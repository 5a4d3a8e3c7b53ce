// SPDX-License-Identifier: Apache-2.0
// For backends that need a device for each rank, as NCCL does: says which ranks share one while the job starts, before
// the first collective would fail. Header only: plugins call it without a symbol of libaccel.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/error.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm {

// All ranks call. `device` identifies the device of this rank among those of all hosts, `name` says which one it is,
// and `advice` what to do. Returns on a rank when all ranks have a device of their own.
inline void require_own_device(c10d::Store& store, int rank, int size, const std::string& device,
                               const std::string& name, const std::string& advice) {
  const auto bytes = [](const std::string& line) { return std::vector<uint8_t>(line.begin(), line.end()); };
  const std::string own = text(rank);
  const std::vector<uint8_t> first = store.compareSet("device/" + device, {}, bytes(own));
  if (first != bytes(own))
    throw CollectiveError(
        CollectiveFailure::kInvalid, rank,
        text("ranks ", std::string(first.begin(), first.end()), " and ", rank, " are both on ", name, "; ", advice));
  const std::string all_checked = "devices/checked";
  if (store.add("devices/count", 1) == size) store.set(all_checked, bytes("1"));
  store.wait({all_checked}, store.getTimeout());
}

}  // namespace accel::comm
