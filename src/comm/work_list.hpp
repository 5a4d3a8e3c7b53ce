// The works of a state that the program started: those under way, and those with callbacks that nobody has run.
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
  // Once when it was started, and again when it gets a callback.
  void add(const std::shared_ptr<Work>& work);
  void add_again(const std::shared_ptr<Work>& work);

  // Runs the callbacks of what has ended. Waits for one up to `longest` while something is under way. Whether something
  // still is.
  bool progress(std::chrono::microseconds longest);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Work>> works_;
};

}  // namespace accel::comm
