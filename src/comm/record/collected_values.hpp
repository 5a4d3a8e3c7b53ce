// SPDX-License-Identifier: Apache-2.0
// Collected values: how each rank gets a value of all others through the store. Each publishes its own, and the last
// one collects them in one value, which all wait for. Thousands of ranks then ask the server for one value each, not
// for thousands of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace c10d {
class Store;
}

namespace accel::comm {

// The values of these keys, which are there, in one: each behind its size.
std::vector<uint8_t> collect_values(c10d::Store& store, const std::vector<std::string>& keys);

// Reads them one after the other.
class CollectedValues {
 public:
  explicit CollectedValues(std::vector<uint8_t> values) : values_(std::move(values)) {}

  // The bytes of the next one; none if the values end before.
  std::pair<const uint8_t*, size_t> next();

 private:
  const std::vector<uint8_t> values_;
  size_t place_ = 0;
};

}  // namespace accel::comm
