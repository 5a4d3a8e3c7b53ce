// SPDX-License-Identifier: Apache-2.0
#include "comm/record/collected_values.hpp"

#include <cstring>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace accel::comm {

std::vector<uint8_t> collect_values(c10d::Store& store, const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> values;
  if (store.hasExtendedApi())
    values = store.multiGet(keys);
  else
    for (const std::string& key : keys) values.push_back(store.get(key));
  std::vector<uint8_t> all;
  for (const auto& value : values) {
    const auto size = static_cast<uint32_t>(value.size());
    const auto* const begin = reinterpret_cast<const uint8_t*>(&size);
    all.insert(all.end(), begin, begin + sizeof size);
    all.insert(all.end(), value.begin(), value.end());
  }
  return all;
}

std::pair<const uint8_t*, size_t> CollectedValues::next() {
  uint32_t size = 0;
  if (values_.size() - place_ < sizeof size) return {nullptr, 0};
  std::memcpy(&size, values_.data() + place_, sizeof size);
  place_ += sizeof size;
  if (values_.size() - place_ < size) return {nullptr, 0};
  place_ += size;
  return {values_.data() + place_ - size, size};
}

}  // namespace accel::comm
