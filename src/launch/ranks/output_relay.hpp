// SPDX-License-Identifier: Apache-2.0
// The launcher's own stdout and stderr as what ranks write is shown on them. Nothing blocks: a reader who is slow, or
// gone, must not keep the launcher from seeing that a rank has failed.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace accel::launch {

class OutputRelay {
 public:
  explicit OutputRelay(int descriptor) : descriptor_(descriptor) {}

  void add(std::string_view text);
  // Nothing should be added while it is full.
  bool is_full() const { return pending_.size() - written_ >= kMostPending; }
  bool has_pending() const { return !pending_.empty(); }

  // To poll, and what was found. Its number is negative if nothing is to be written.
  pollfd polled() const { return {has_pending() ? descriptor_ : -1, POLLOUT, 0}; }
  void write_some(const pollfd& found);
  // Drops the pending output of a reader that does not read.
  void drop();

 private:
  static constexpr size_t kMostPending = 256 * 1024;

  const int descriptor_;
  bool is_closed_ = false;  // nobody reads any more
  std::string pending_;
  size_t written_ = 0;  // bytes of `pending_`
};

struct OutputRelays {
  OutputRelay out{STDOUT_FILENO}, error{STDERR_FILENO};

  bool has_pending() const { return out.has_pending() || error.has_pending(); }
};

}  // namespace accel::launch
