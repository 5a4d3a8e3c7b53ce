// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/wake_ups.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm::ucx {
namespace {

void make_readable(const FileDescriptor& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written =
      write(event.number(), &one, sizeof(one));  // fails only if it is already readable
}

void take(const FileDescriptor& event) {
  uint64_t times;
  [[maybe_unused]] const auto taken = read(event.number(), &times, sizeof(times));
}

}  // namespace

WakeUps::WakeUps(int rank)
    : rank_(rank),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      signal_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      recall_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!events_.is_open() || !signal_.is_open() || !recall_.is_open())
    throw CollectiveError(CollectiveFailure::kBackend, rank,
                          text("rank ", rank, " has no file descriptor left; raise the limit (ulimit -n)"));
  watch(signal_.number());
}

void WakeUps::wake() {
  wakes_.fetch_add(1);
  if (!sleeping_.load()) return;
  wake_sleepers(wakes_);
  if (const auto* const word = single_futex_.load()) wake_sleepers(*word);
  make_readable(signal_);
}

void WakeUps::recall() const { make_readable(recall_); }

void WakeUps::sleep_beside_others(int timeout_ms) const {
  pollfd events[] = {{events_.number(), POLLIN, 0}, {recall_.number(), POLLIN, 0}};
  poll(events, 2, timeout_ms);
  if (events[1].revents != 0) take(recall_);
}

void WakeUps::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  if (epoll_ctl(events_.number(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw CollectiveError(CollectiveFailure::kBackend, rank_,
                          text("rank ", rank_, " cannot wait for events: ", std::strerror(errno)));
}

void WakeUps::forget(int descriptor) { epoll_ctl(events_.number(), EPOLL_CTL_DEL, descriptor, nullptr); }

// Only a futex ends a sleep on futexes. Sleeping on a single one takes half the time, but misses a wake-up just before
// it.
void WakeUps::begin() {
  sleeping_.store(true);
  if (futexes_.size() > 1)
    futexes_.push_back({&wakes_, wakes_.load()});
  else if (!futexes_.empty())
    single_futex_.store(futexes_[0].word);
}

void WakeUps::end() {
  single_futex_.store(nullptr);
  sleeping_.store(false);
}

void WakeUps::take_signal() const { take(signal_); }

}  // namespace accel::comm::ucx
