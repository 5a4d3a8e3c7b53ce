#include "comm/ucx/driver.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/background_thread.hpp"
#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/bulletin.hpp"
#include "comm/ucx/progress.hpp"

namespace accel::comm::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLongestSleep = 100;  // milliseconds; deadlines and the store are looked at in between
constexpr int kPatience = 100;      // rounds without a pause where the transport cannot report events
constexpr int kFlushTime = 1000;    // milliseconds
constexpr auto kSegmentSleep = std::chrono::milliseconds(5);
constexpr auto kShortSegmentSleep = std::chrono::milliseconds(1);  // while point-to-point calls are open
constexpr uint32_t kTransportEvent = ~uint32_t{0};
constexpr uint32_t kWakeUpEvent = kTransportEvent - 1;

// Set when the process ends while groups are open: UCX is being torn down, so their threads must not enter it any more.
std::atomic<bool> process_ends{false};

void stop_if_process_ends() {
  while (process_ends.load(std::memory_order_relaxed)) pause();
}

bool watch(const FileDescriptor& events, int descriptor, uint32_t meaning) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = meaning;
  return epoll_ctl(events.number(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void copy_result(const at::Tensor& to, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  to.copy_(from);
}

}  // namespace

Driver::Driver(std::unique_ptr<Transport> transport, Peers peers, std::unique_ptr<HostSegment> segment,
               const char* (*current_call)())
    : transport_(std::move(transport)),
      peers_(std::move(peers)),
      current_call_(current_call),
      memory_(peers_.rank()),
      segment_(std::move(segment)),
      spin_(peers_.cores_suffice() ? 20 : 0),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      wake_up_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  static const int registered = std::atexit([] { process_ends.store(true); });
  if (!events_.is_open() || !wake_up_.is_open() || registered != 0)
    throw CollectiveError(CollectiveFailure::kBackend, rank(),
                          text("rank ", rank(), " has no file descriptor left; raise the limit (ulimit -n)"));
  bool watches = watch(events_, transport_->event_descriptor(), kTransportEvent) &&
                 watch(events_, wake_up_.number(), kWakeUpEvent);
  for (int peer = 0; peer < size(); peer++) {
    if (peers_.process_descriptor(peer) >= 0)
      watches = watches && watch(events_, peers_.process_descriptor(peer), static_cast<uint32_t>(peer));
    ticks_ = ticks_ || !peers_.same_host(peer);
  }
  if (!watches)
    throw CollectiveError(CollectiveFailure::kBackend, rank(),
                          text("rank ", rank(), " cannot wait for events: ", std::strerror(errno)));
}

Driver::~Driver() {
  shutdown();
  if (thread_.joinable()) thread_.detach();  // only when the thread itself lets go of the group last
}

void Driver::start() {
  thread_ = background_thread("accel-ucx", [self = shared_from_this()] { self->run_thread(); });
}

void Driver::submit(Task task, bool at_once) {
  if (current_call_ != nullptr) task.call = current_call_();
  std::unique_lock<std::mutex> lock(mutex_);
  if (failure_) throw_failure(*failure_);
  task.work->name_call(task.call, sequence_);
  for (auto& part : task.parts) part.header.sequence = sequence_++;
  if (at_once && !driven_ && tasks_.empty()) {
    claim();
    lock.unlock();
    run_task(task);
    release();
    return;
  }
  tasks_.push_back(std::move(task));
  tasks_waiting_.store(true);
  lock.unlock();
  wake_up();
}

void Driver::submit(PointToPoint call) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (failure_) throw_failure(*failure_);
  if (driven_) {
    submissions_.push_back(std::move(call));
    lock.unlock();
    wake_up();
    return;
  }
  claim();
  lock.unlock();
  try {
    post(std::move(call));
  } catch (const std::exception&) {
    give_up_for_exception();
  }
  release();
}

void Driver::wake_up() {
  attention_.store(true);
  changed_.notify_all();
  if (!sleeping_.load()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const auto written =
      write(wake_up_.number(), &one, sizeof(one));  // fails only when it is readable already
}

void Driver::help(UcxWork& work) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (work.isCompleted()) return;
  if (driven_) {
    if (driver_ == std::this_thread::get_id())
      throw CollectiveError(CollectiveFailure::kInvalid, rank(),
                            text("waiting for ", work.title(),
                                 " inside a completion callback would wait for itself; "
                                 "chain a callback on its future"));
    return;
  }
  if (!has_work()) return;
  claim();
  lock.unlock();
  drive([&work] { return work.isCompleted(); });
  release();
}

void Driver::abort(const std::string& reason) {
  give_up({CollectiveFailure::kAborted, rank(), reason});
  wake_up();
}

void Driver::shutdown() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return;
    stop_ = true;
  }
  const bool own_thread = thread_.get_id() == std::this_thread::get_id();
  std::unique_lock<std::mutex> lock(mutex_);
  const bool open = !own_thread && (driven_ || has_work());
  lock.unlock();
  if (open) give_up(end_of_group(" while calls were open"));
  wake_up();
  if (own_thread) return;
  if (thread_.joinable()) thread_.join();
  lock.lock();
  changed_.wait(lock, [this] { return !driven_; });  // who drives sees the abort at once
  claim();
  const bool clean = !failure_;
  if (clean) failure_ = end_of_group("");
  lock.unlock();
  fail_open_calls();
  if (clean) transport_->flush(kFlushTime);
  if (Bulletin* const bulletin = peers_.bulletin(rank()); clean && bulletin != nullptr) bulletin->leave();
  buffers_ = {};
  transport_.reset();
  segment_.reset();
  abandoned_.clear();
  lock.lock();
  driven_ = false;
}

bool Driver::has_work() const { return !tasks_.empty() || !submissions_.empty() || !posted_.empty(); }

void Driver::claim() {
  driven_ = true;
  driver_ = std::this_thread::get_id();
}

void Driver::release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  driven_ = false;
  driver_ = {};
  if (stop_ || has_work()) changed_.notify_all();
}

template <typename Done>
void Driver::drive(const Done& enough) noexcept {
  try {
    while (!enough()) {
      if (auto task = next_task()) {
        run_task(*task);
        continue;
      }
      service();
      if (posted_.empty()) return;
      progress_until([&] { return enough() || posted_.empty() || tasks_waiting_.load(); }, nullptr);
    }
  } catch (const std::exception&) {
    give_up_for_exception();
    fail_open_calls();
  }
}

void Driver::run_thread() {
  const c10::ParallelGuard no_pool(true);  // copies of results must not start a second thread pool
  std::unique_lock<std::mutex> lock(mutex_);
  const auto called = [this] { return stop_ || (!driven_ && has_work()); };
  while (!stop_) {
    if (!ticks_)
      changed_.wait(lock, called);
    else
      changed_.wait_for(lock, std::chrono::milliseconds(kLongestSleep), called);
    stop_if_process_ends();
    if (stop_ || driven_) continue;
    claim();
    lock.unlock();
    if (ticks_) transport_->progress();
    drive([] { return false; });
    release();
    lock.lock();
  }
}

std::optional<Task> Driver::next_task() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_) throw_failure(*failure_);
  if (tasks_.empty()) return std::nullopt;
  std::optional<Task> task(std::move(tasks_.front()));
  tasks_.pop_front();
  tasks_waiting_.store(!tasks_.empty());
  return task;
}

std::optional<PointToPoint> Driver::next_submission() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_) throw_failure(*failure_);
  attention_.store(!submissions_.empty());
  if (submissions_.empty()) return std::nullopt;
  std::optional<PointToPoint> call(std::move(submissions_.front()));
  submissions_.pop_front();
  return call;
}

void Driver::run_task(Task& task) noexcept {
  Bulletin* const bulletin = peers_.bulletin(rank());
  std::exception_ptr error;
  try {
    for (const auto& part : task.parts) {
      if (bulletin != nullptr) bulletin->begin(task.call, operation_name(part.header.operation), part.header.sequence);
      task.work->set_sequence(part.header.sequence);
      Session session(*this, buffers_, part.header, task.call, task.timeout);
      run(part, session);
    }
    for (const auto& [to, from] : task.copies) copy_result(to, from);
    if (bulletin != nullptr) bulletin->end();
  } catch (const std::exception&) {
    error = fail_task(task);
    skip_rest_of(task);
  }
  task.work->complete(std::move(error), task.thread_state);
}

void Driver::service() {
  if (attention_.load(std::memory_order_relaxed))
    while (auto call = next_submission()) post(std::move(*call));
  if (!posted_.empty()) finish_posted();
}

void Driver::post(PointToPoint call) {
  const auto bytes = call.memory.nbytes();
  try {
    if (posted_.size() == posted_.capacity()) posted_.reserve(2 * posted_.size() + 1);  // what UCX has must find room
    call.message =
        call.receives
            ? transport_->receive(call.peer, call.memory.data_ptr(), bytes, Channel::kPointToPoint, call.tag)
            : transport_->send(call.peer, call.memory.const_data_ptr(), bytes, Channel::kPointToPoint, call.tag);
  } catch (const CollectiveError& error) {
    call.work->complete(std::current_exception(), call.thread_state);
    if (!group_survives(error.failure())) throw;
    return;
  } catch (const std::exception&) {
    call.work->complete(std::current_exception(), call.thread_state);
    throw;
  }
  posted_.push_back(std::move(call));
  finish_posted();
}

void Driver::finish_posted() {
  for (size_t i = 0; i < posted_.size();) {
    std::exception_ptr error;
    bool broken = false;
    try {
      if (!posted_[i].message.done()) {
        i++;
        continue;
      }
    } catch (const CollectiveError& failure) {
      error = std::current_exception();
      broken = !group_survives(failure.failure());
    }
    PointToPoint call = std::move(posted_[i]);
    posted_[i] = std::move(posted_.back());
    posted_.pop_back();
    complete(call, error);
    if (broken) std::rethrow_exception(error);
  }
}

void Driver::complete(PointToPoint& call, std::exception_ptr error) noexcept {
  try {
    if (!error && call.receives) take_received(call);
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  call.work->complete(std::move(error), call.thread_state);
}

void Driver::take_received(PointToPoint& call) {
  const size_t expected = call.memory.nbytes(), received = call.message.received();
  call.work->set_source(call.message.source());
  if (received != expected)
    throw CollectiveError(
        CollectiveFailure::kMismatch, rank(),
        text(call.work->title(), " on rank ", rank(), ": rank ", call.message.source(), " sent ", received,
             " bytes and the tensor has ", expected, "; both must have the same shape and dtype"));
  if (call.target.defined()) copy_result(call.target, call.memory);
}

void Driver::check(Session* session) {
  stop_if_process_ends();
  check_peers(session);
  check_deadlines(session);
}

void Driver::sleep(Session* session) {
  check(session);
  if (session && session->waits_for_segment()) {
    // Nothing but the segment ends this sleep, so the other events are looked at in between.
    wait_for_events(0);
    return session->sleep_on_segment(posted_.empty() ? kSegmentSleep : kShortSegmentSleep);
  }
  // The transport refuses to report events as long as it has something to progress. That is for ever where a peer
  // ended, or stands still, while it wrote into this rank's queue.
  refusals_ = transport_->arm() ? 0 : refusals_ + 1;
  int time = refusals_ == 0 ? kLongestSleep : refusals_ < kPatience ? 0 : 1;
  if (session) time = std::min<int>(time, static_cast<int>(session->deadline().left().count()) + 1);
  sleeping_.store(true);
  wait_for_events(attention_.load() ? 0 : time);
  sleeping_.store(false);
}

void Driver::wait_for_events(int timeout_ms) {
  epoll_event events[8];
  const int count = epoll_wait(events_.number(), events, 8, timeout_ms);
  for (int i = 0; i < count; i++) {
    const uint32_t meaning = events[i].data.u32;
    if (meaning == kTransportEvent) continue;
    if (meaning == kWakeUpEvent) {
      uint64_t times;
      [[maybe_unused]] const auto taken = read(wake_up_.number(), &times, sizeof(times));
      continue;
    }
    // What the process sent before it ended is still received: only then do its open messages fail.
    const int peer = static_cast<int>(meaning);
    const Bulletin* const bulletin = peers_.bulletin(peer);
    gone_.push_back(peer);
    if (!loss_ && (bulletin == nullptr || !bulletin->has_left())) loss_ = Loss{peer, Clock::now()};
    epoll_ctl(events_.number(), EPOLL_CTL_DEL, peers_.process_descriptor(peer), nullptr);
  }
}

}  // namespace accel::comm::ucx
