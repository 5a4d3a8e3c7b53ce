// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/output_relay.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>

namespace accel::launch {

void OutputRelay::add(std::string_view text) {
  if (!is_closed_) pending_.append(text);
}

void OutputRelay::write_some(const pollfd& found) {
  if (found.revents == 0 || !has_pending()) return;
  // So much can be written without waiting where poll() says that anything can.
  const ssize_t count =
      write(descriptor_, pending_.data() + written_, std::min<size_t>(pending_.size() - written_, PIPE_BUF));
  if (count < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    is_closed_ = true;
    return drop();
  }
  written_ += static_cast<size_t>(count);
  if (written_ == pending_.size()) return drop();
  if (written_ < kMostPending) return;
  pending_.erase(0, written_);
  written_ = 0;
}

void OutputRelay::drop() {
  pending_.clear();
  written_ = 0;
}

}  // namespace accel::launch
