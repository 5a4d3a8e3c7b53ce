// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/progress_loop.hpp"

#include <algorithm>
#include <mutex>

#include "comm/ucx/progress/failure_detector.hpp"
#include "comm/ucx/progress/process_exit.hpp"
#include "os/background_thread.hpp"

namespace accel::comm::ucx {
namespace {

constexpr int kLongestSleep = 100;                       // milliseconds; deadlines and the store are checked in between
constexpr int kPatience = 100;                           // rounds without a pause while the worker cannot report events
constexpr auto kAbsence = std::chrono::milliseconds(1);  // of the thread that has lent its claim
constexpr auto kLongestAbsence = std::chrono::milliseconds(10);  // while others use it without waiting
constexpr auto kSegmentSleep = std::chrono::milliseconds(5);
constexpr auto kShortSegmentSleep = std::chrono::milliseconds(1);  // while messages are under way as well

std::unique_ptr<Worker> make_worker(int rank, int peers, bool stays_on_host) {
  const SignalsBlocked for_the_thread_of_ucx;
  return std::make_unique<Worker>(rank, peers, stays_on_host);
}

}  // namespace

ProgressLoop::ProgressLoop(int rank, int peers, bool stays_on_host, Claim& claim, RequestQueue& requests,
                           GroupList& groups)
    : claim_(claim),
      requests_(requests),
      groups_(groups),
      wake_ups_(rank),
      worker_(make_worker(rank, peers, stays_on_host)) {
  wake_ups_.watch(worker_->event_descriptor());
}

void ProgressLoop::watch(ProgressedGroup& group) {
  wake_ups_.watch(group.detector().event_descriptor());
  if (!group.detector().peers().cores_suffice()) {
    spin_.turn_off();
    message_spin_.turn_off();
  }
  const std::lock_guard<std::mutex> lock(claim_.mutex());
  const size_t most = groups_.size() + 1;
  wake_ups_.reserve(most);  // now, because a failure here is harmless
  active_groups_.reserve(most);
}

void ProgressLoop::forget(ProgressedGroup& group) {
  wake_ups_.forget(group.detector().event_descriptor());
  active_groups_.clear();
  attention_.store(true);
}

bool ProgressLoop::progress_groups() {
  if (attention_.exchange(false)) {
    requests_.run_all();
    const std::lock_guard<std::mutex> lock(claim_.mutex());
    groups_.copy_to(active_groups_);
  }
  bool moved = false;
  busy_ = false;
  for (size_t i = 0; i < active_groups_.size(); i++) {
    const GroupList::GroupPointer group = active_groups_[i];
    moved = group->progress() || moved;
    busy_ = busy_ || group->is_busy();
  }
  return moved;
}

void ProgressLoop::check(Session* session) {
  stop_if_process_exits();
  if (session != nullptr) session->waiter().check(*session);
  for (size_t i = 0; i < active_groups_.size(); i++) {
    const GroupList::GroupPointer group = active_groups_[i];
    group->check_open_calls();
  }
}

void ProgressLoop::sleep(Session* session, Sleep kind) {
  check(session);
  wake_ups_.prepare();
  bool waits_for_messages = false, something_to_do = false, has_collective = session != nullptr;
  int time = kLongestSleep;
  const auto add_waits_of = [&](const Session& waiting) {
    if (const SegmentStep* const step = waiting.segment_step()) {
      wake_ups_.add_futex(step->begin_sleep());
      something_to_do = something_to_do || waiting.has_arrived();
    } else {
      waits_for_messages = true;
    }
    time = std::min<int>(time, static_cast<int>(waiting.deadline().left().count()) + 1);
  };
  if (session != nullptr) add_waits_of(*session);
  for (const auto& group : active_groups_) {
    const GroupWait wait = group->current_wait();
    if (wait.session != nullptr) add_waits_of(*wait.session);
    has_collective = has_collective || wait.session != nullptr;
    waits_for_messages = waits_for_messages || wait.for_messages;
    something_to_do = something_to_do || wait.is_over;
  }
  const auto end_waits_of = [](const Session* waiting) {
    if (const SegmentStep* const step = waiting != nullptr ? waiting->segment_step() : nullptr) step->end_sleep();
  };
  const bool on_futexes = wake_ups_.has_futexes();
  wake_ups_.begin();
  if (on_futexes) {
    // Other events are checked before, and a wake-up that is missed is noticed after these milliseconds.
    if (!wait_for_events(0) && !attention_.load() && !something_to_do)
      wake_ups_.sleep_on_futexes(waits_for_messages ? kShortSegmentSleep : kSegmentSleep);
    end_waits_of(session);
    for (const auto& group : active_groups_) end_waits_of(group->current_wait().session);
  } else {
    // The worker refuses to report events while it has something to progress: for ever if a peer ended or was stopped
    // while it wrote into this rank's queue.
    refusals_ = worker_->arm() ? 0 : refusals_ + 1;
    if (refusals_ != 0) time = refusals_ < kPatience ? 0 : 1;
    if (attention_.load() || something_to_do) time = 0;
    if (kind == Sleep::kLending && !has_collective && time > 1)
      sleep_lending(time);
    else
      wait_for_events(time);
  }
  wake_ups_.end();
}

// Who has used the claim will soon do so again, and progresses the calls of all meanwhile: the lender leaves it to him
// until it has been free for a while.
void ProgressLoop::sleep_lending(int timeout_ms) {
  std::unique_lock<std::mutex> lock(claim_.mutex());
  uint64_t uses = claim_.uses();
  claim_.lend();
  claim_.changed().notify_all();
  lock.unlock();
  wake_ups_.sleep_beside_others(timeout_ms);
  stop_if_process_exits();
  const auto latest = std::chrono::steady_clock::now() + kLongestAbsence;
  lock.lock();
  claim_.recall_lender();
  const auto is_called = [this] { return attention_.load() && !claim_.is_taken(); };
  while (claim_.is_taken() ||
         (claim_.uses() != uses && !attention_.load() && std::chrono::steady_clock::now() < latest)) {
    uses = claim_.uses();
    claim_.changed().wait_for(lock, kAbsence, is_called);
  }
  claim_.take_back();
  lock.unlock();
  wait_for_events(0);
}

// Whether a process has ended.
bool ProgressLoop::wait_for_events(int timeout_ms) {
  bool ended = false;
  wake_ups_.wait_for_events(timeout_ms, [&](int descriptor) {
    if (descriptor == worker_->event_descriptor()) return;
    ended = true;
    const std::lock_guard<std::mutex> lock(claim_.mutex());
    groups_.check_ended_processes(descriptor);
  });
  return ended;
}

}  // namespace accel::comm::ucx
