// SPDX-License-Identifier: Apache-2.0
#include "track/latest_scalars.hpp"

namespace accel::track {
namespace {

constexpr size_t kMostLatest = 4096;

}  // namespace

void LatestScalars::add(const Record& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < record.size(); i++) {
    const Record::Value value = record.value(i);
    if (value.kind != Record::ValueKind::kNumber && value.kind != Record::ValueKind::kInteger) continue;
    const auto found = scalars_.find(value.name);
    if (found != scalars_.end())
      found->second = value.number;
    else if (scalars_.size() < kMostLatest)
      scalars_.emplace(value.name, value.number);
  }
}

}  // namespace accel::track
