// SPDX-License-Identifier: Apache-2.0
// The open works of a state: calls that are running, and callbacks that have not run yet.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/work.hpp"

namespace accel::comm {

class WorkList : public std::enable_shared_from_this<WorkList> {
 public:
  // Called when a work is started, and again when it gets a callback.
  void add(const std::shared_ptr<Work>& work);
  void add_again(const std::shared_ptr<Work>& work);

  // Runs the callbacks of completed works. While works are running, waits up to `longest` for one. Returns whether some
  // are still running, or have ended since and have callbacks to run.
  bool progress(std::chrono::microseconds longest);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Work>> works_;
};

}  // namespace accel::comm
