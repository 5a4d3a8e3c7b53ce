#include "comm/ucx/progress/progress_engine.hpp"

#include <c10/util/ParallelGuard.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "os/background_thread.hpp"

namespace accel::comm::ucx {
namespace {

constexpr int kLongestSleep = 100;  // milliseconds; deadlines and the store are checked in between
constexpr int kPatience = 100;      // rounds without a pause while the worker cannot report events
constexpr auto kFlushTime = Deadline::Milliseconds(1000);
constexpr auto kSegmentSleep = std::chrono::milliseconds(5);
constexpr auto kShortSegmentSleep = std::chrono::milliseconds(1);  // while messages are under way as well

// Set when the process exits while groups are open: UCX is being torn down, so their threads must not call it any more.
std::atomic<bool> process_ends{false};

void stop_if_process_ends() {
  while (process_ends.load(std::memory_order_relaxed)) pause();
}

bool watch(const FileDescriptor& events, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  return epoll_ctl(events.number(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

}  // namespace

ProgressEngine::Membership ProgressEngine::start(int rank, int size) {
  const auto engine = std::make_shared<ProgressEngine>(rank, size);
  engine->thread_ = background_thread("accel-ucx", [engine] { engine->run_thread(); });
  // The engine refers to its membership weakly: it must not keep itself alive after the last one.
  const Membership membership(engine.get(), [owner = engine](ProgressEngine*) mutable {
    owner->stop();
    owner.reset();
  });
  engine->membership_ = membership;
  return membership;
}

ProgressEngine::Membership ProgressEngine::join() const { return membership_.lock(); }

ProgressEngine::ProgressEngine(int rank, int size)
    : rank_(rank), events_(epoll_create1(EPOLL_CLOEXEC)), wake_up_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  static const int registered = std::atexit([] { process_ends.store(true); });
  if (!events_.is_open() || !wake_up_.is_open() || registered != 0)
    throw CollectiveError(CollectiveFailure::kBackend, rank,
                          text("rank ", rank, " has no file descriptor left; raise the limit (ulimit -n)"));
  const SignalsBlocked for_the_thread_of_ucx;
  worker_ = std::make_unique<Worker>(rank, size);
  if (!watch(events_, worker_->event_descriptor()) || !watch(events_, wake_up_.number()))
    throw CollectiveError(CollectiveFailure::kBackend, rank,
                          text("rank ", rank, " cannot wait for events: ", std::strerror(errno)));
}

ProgressEngine::~ProgressEngine() {
  if (thread_.joinable()) thread_.detach();  // only if the thread itself drops the last reference
}

// Sends what is queued first. If called by the owner itself, the rest is left to the destructor.
void ProgressEngine::stop() {
  std::unique_lock<std::mutex> lock(mutex_);
  stop_ = true;
  changed_.notify_all();
  if (thread_.get_id() == std::this_thread::get_id() || is_claimed_here()) return;
  lock.unlock();
  thread_.join();
  if (kept_.empty()) worker_->flush(Deadline(kFlushTime));  // otherwise a group has failed
  for (CallMemory& memory : kept_) memory.buffers.messages.clear();
  worker_.reset();
  kept_.clear();
}

void ProgressEngine::run(const std::function<void()>& function) {
  Request request{&function};
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (is_claimed_here()) {
      lock.unlock();
      return function();
    }
    Request** end = &first_request_;
    while (*end != nullptr) end = &(*end)->next;
    *end = &request;
    lock.unlock();
    wake_up();
    lock.lock();
    changed_.wait(lock, [&] { return request.done || !claimed_; });
    if (!request.done) {
      claim();
      lock.unlock();
      run_requests();
      release();
    }
  }
  if (request.error) std::rethrow_exception(request.error);
}

void ProgressEngine::add(const std::shared_ptr<ProgressedGroup>& group) {
  run([&] {
    if (!watch(events_, group->event_descriptor()))
      throw CollectiveError(CollectiveFailure::kBackend, rank_,
                            text("rank ", rank_, " cannot wait for events: ", std::strerror(errno)));
    ticks_ = ticks_ || group->peers().has_other_hosts();
    if (!group->peers().cores_suffice()) spin_.turn_off();
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t most = groups_.size() + 1;
    waits_.reserve(most + 1);  // now, because a failure here is harmless
    active_groups_.reserve(most);
    groups_.push_back(group);
  });
}

void ProgressEngine::remove(const ProgressedGroup& group) {
  run([&] {
    epoll_ctl(events_.number(), EPOLL_CTL_DEL, group.event_descriptor(), nullptr);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto is_it = [&](const std::shared_ptr<ProgressedGroup>& one) { return one.get() == &group; };
    groups_.erase(std::remove_if(groups_.begin(), groups_.end(), is_it), groups_.end());
    active_groups_.clear();
    attention_.store(true);
  });
}

uint32_t ProgressEngine::new_group_number() {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (true) {
    latest_number_ = (latest_number_ + 1) % (1 << kGroupNumberBits);
    const auto has_it = [this](const std::shared_ptr<ProgressedGroup>& group) {
      return group->number() == latest_number_;
    };
    if (std::none_of(groups_.begin(), groups_.end(), has_it)) return latest_number_;
  }
}

void ProgressEngine::claim() {
  claimed_ = true;
  owner_ = std::this_thread::get_id();
}

void ProgressEngine::release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  claimed_ = false;
  owner_ = {};
  if (stop_ || has_work()) changed_.notify_all();
}

void ProgressEngine::wake_up() {
  attention_.store(true);
  wakes_.fetch_add(1);
  changed_.notify_all();
  if (!sleeping_.load()) return;
  wake_sleepers(wakes_);
  if (const auto* const word = single_wait_.load()) wake_sleepers(*word);
  const uint64_t one = 1;
  [[maybe_unused]] const auto written =
      write(wake_up_.number(), &one, sizeof(one));  // fails only if it is already readable
}

bool ProgressEngine::has_work() const {
  return first_request_ != nullptr ||
         std::any_of(groups_.begin(), groups_.end(),
                     [](const std::shared_ptr<ProgressedGroup>& group) { return group->has_work(); });
}

void ProgressEngine::run_thread() {
  const c10::ParallelGuard no_pool(true);  // copies of results must not start a second thread pool
  std::unique_lock<std::mutex> lock(mutex_);
  const auto called = [this] { return stop_ || (!claimed_ && has_work()); };
  while (!stop_) {
    if (!ticks_)
      changed_.wait(lock, called);
    else
      changed_.wait_for(lock, std::chrono::milliseconds(kLongestSleep), called);
    stop_if_process_ends();
    if (stop_ || claimed_) continue;
    claim();
    lock.unlock();
    progress_until_idle([] { return false; });
    release();
    lock.lock();
  }
}

void ProgressEngine::run_requests() {
  while (true) {
    Request* request = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (first_request_ == nullptr) break;
      request = std::exchange(first_request_, first_request_->next);
    }
    try {
      (*request->function)();
    } catch (const std::exception&) {
      request->error = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    request->done = true;
    changed_.notify_all();
  }
}

bool ProgressEngine::progress_groups() {
  if (attention_.exchange(false)) {
    run_requests();
    const std::lock_guard<std::mutex> lock(mutex_);
    active_groups_ = groups_;
  }
  bool moved = false;
  busy_ = false;
  for (size_t i = 0; i < active_groups_.size(); i++) {
    const std::shared_ptr<ProgressedGroup> group = active_groups_[i];
    moved = group->progress() || moved;
    busy_ = busy_ || group->is_busy();
  }
  return moved;
}

void ProgressEngine::check(Session* session) {
  stop_if_process_ends();
  if (session != nullptr) session->check();
  for (size_t i = 0; i < active_groups_.size(); i++) {
    const std::shared_ptr<ProgressedGroup> group = active_groups_[i];
    group->check_open_calls();
  }
}

void ProgressEngine::sleep(Session* session) {
  check(session);
  waits_.clear();
  bool waits_for_messages = false, something_to_do = false;
  int time = kLongestSleep;
  const auto add_waits_of = [&](const Session& waiting) {
    if (waiting.waits_for_segment()) {
      waits_.push_back(waiting.begin_sleep());
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
    waits_for_messages = waits_for_messages || wait.for_messages;
    something_to_do = something_to_do || wait.is_over;
  }
  sleeping_.store(true);
  if (!waits_.empty()) {
    // Only a futex ends this sleep, so other events are checked in between. Sleeping on a single futex takes half the
    // time, but misses a wake-up just before it, which is noticed after these milliseconds.
    if (waits_.size() > 1)
      waits_.push_back({&wakes_, wakes_.load()});
    else
      single_wait_.store(waits_[0].word);
    if (!wait_for_events(0) && !attention_.load() && !something_to_do)
      sleep_on_any(waits_, waits_for_messages ? kShortSegmentSleep : kSegmentSleep);
    single_wait_.store(nullptr);
    if (session != nullptr && session->waits_for_segment()) session->end_sleep();
    for (const auto& group : active_groups_)
      if (const Session* const waiting = group->current_wait().session; waiting && waiting->waits_for_segment())
        waiting->end_sleep();
  } else {
    // The worker refuses to report events while it has something to progress: for ever if a peer ended or was stopped
    // while it wrote into this rank's queue.
    refusals_ = worker_->arm() ? 0 : refusals_ + 1;
    if (refusals_ != 0) time = refusals_ < kPatience ? 0 : 1;
    wait_for_events(attention_.load() || something_to_do ? 0 : time);
  }
  sleeping_.store(false);
}

// Whether a process has ended.
bool ProgressEngine::wait_for_events(int timeout_ms) {
  epoll_event events[8];
  const int count = epoll_wait(events_.number(), events, 8, timeout_ms);
  bool ended = false;
  for (int i = 0; i < count; i++) {
    const int descriptor = events[i].data.fd;
    if (descriptor == worker_->event_descriptor()) continue;
    if (descriptor == wake_up_.number()) {
      uint64_t times;
      [[maybe_unused]] const auto taken = read(wake_up_.number(), &times, sizeof(times));
      continue;
    }
    ended = true;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& group : groups_)
      if (group->event_descriptor() == descriptor) group->check_ended_processes(0);
  }
  return ended;
}

}  // namespace accel::comm::ucx
