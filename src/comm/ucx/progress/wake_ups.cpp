#include "comm/ucx/progress/wake_ups.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm::ucx {

WakeUps::WakeUps(int rank)
    : rank_(rank), events_(epoll_create1(EPOLL_CLOEXEC)), signal_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!events_.is_open() || !signal_.is_open())
    throw CollectiveError(CollectiveFailure::kBackend, rank,
                          text("rank ", rank, " has no file descriptor left; raise the limit (ulimit -n)"));
  watch(signal_.number());
}

void WakeUps::wake() {
  wakes_.fetch_add(1);
  if (!sleeping_.load()) return;
  wake_sleepers(wakes_);
  if (const auto* const word = single_futex_.load()) wake_sleepers(*word);
  const uint64_t one = 1;
  [[maybe_unused]] const auto written =
      write(signal_.number(), &one, sizeof(one));  // fails only if it is already readable
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

void WakeUps::take_signal() const {
  uint64_t times;
  [[maybe_unused]] const auto taken = read(signal_.number(), &times, sizeof(times));
}

}  // namespace accel::comm::ucx
