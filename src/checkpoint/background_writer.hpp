// SPDX-License-Identifier: Apache-2.0
// Background writer: runs one save at a time on a thread of its own, beside the training.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace accel::checkpoint {

class BackgroundWriter {
 public:
  BackgroundWriter();
  // Waits for the work, whose own steps have deadlines. So does the end of the process.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Only when it is idle and no error is left. `what` names the work in its error.
  void start(std::string what, std::function<void()> work);
  bool is_busy() const;
  // Returns whether the work has ended; without a timeout it waits until then.
  bool wait(std::optional<std::chrono::milliseconds> timeout) const;
  // Throws the error of work that has ended; it is thrown once.
  void throw_error();
  pid_t process() const { return process_; }  // that has the thread

 private:
  void run(const std::function<void()>& work);

  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  bool busy_ = false;
  pid_t process_ = 0;
  std::string what_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace accel::checkpoint
