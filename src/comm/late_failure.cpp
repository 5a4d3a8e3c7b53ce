// SPDX-License-Identifier: Apache-2.0
#include "comm/late_failure.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace accel::comm {
namespace {

// The groups that have failed late and may not have reported yet.
struct FailedGroups {
  std::mutex mutex;
  std::vector<std::weak_ptr<LateFailure>> groups;
};

// Stays until the end of the process, whose threads may still wait for devices.
FailedGroups& failed_groups() {
  static auto* const made = std::make_unique<FailedGroups>().release();
  return *made;
}

}  // namespace

void LateFailure::set(const std::exception_ptr& error, c10::DeviceType device) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_) return;
    error_ = error;
    device_ = device;
    is_set_ = true;
  }
  FailedGroups& failed = failed_groups();
  const std::lock_guard<std::mutex> lock(failed.mutex);
  const auto is_gone = [](const std::weak_ptr<LateFailure>& group) { return group.expired(); };
  failed.groups.erase(std::remove_if(failed.groups.begin(), failed.groups.end(), is_gone), failed.groups.end());
  failed.groups.push_back(weak_from_this());
}

void LateFailure::rethrow_set() {
  std::exception_ptr error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_set_ = false;
    error.swap(error_);
  }
  if (error) std::rethrow_exception(error);
}

bool LateFailure::is_of(c10::DeviceType device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_ != nullptr && device_ == device;
}

void rethrow_late_failure(c10::DeviceType device) {
  std::vector<std::shared_ptr<LateFailure>> groups;
  {
    FailedGroups& failed = failed_groups();
    const std::lock_guard<std::mutex> lock(failed.mutex);
    for (const auto& group : failed.groups)
      if (auto alive = group.lock(); alive && alive->is_of(device)) groups.push_back(std::move(alive));
  }
  for (const auto& group : groups) group->rethrow();
}

}  // namespace accel::comm
