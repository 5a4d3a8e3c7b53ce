// SPDX-License-Identifier: Apache-2.0
#include "config/interned_bytes.hpp"

#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace accel {

const char* interned_bytes(std::string bytes) {
  struct Kept {
    std::mutex mutex;
    std::set<std::string> contents;
  };
  static Kept* const kept = std::make_unique<Kept>().release();
  const std::lock_guard<std::mutex> lock(kept->mutex);
  return kept->contents.insert(std::move(bytes)).first->c_str();
}

}  // namespace accel
