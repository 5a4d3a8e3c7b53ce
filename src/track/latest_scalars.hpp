// SPDX-License-Identifier: Apache-2.0
// The latest scalar of each name that was logged; at most some thousand names. Any thread may ask.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "track/record.hpp"

namespace accel::track {

class LatestScalars {
 public:
  using Scalars = std::map<std::string, double, std::less<>>;

  void add(const Record& record);
  Scalars all() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return scalars_;
  }

 private:
  mutable std::mutex mutex_;
  Scalars scalars_;
};

}  // namespace accel::track
