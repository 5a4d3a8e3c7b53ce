// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <sys/prctl.h>

#include <algorithm>

#include "settings.hpp"

namespace simulated_device {
namespace {

using std::chrono::microseconds;

// How long a task waits for a host thread that needs it before the stream's thread runs it.
constexpr microseconds kHeadStart{100};
constexpr microseconds kLongestSleep{10000};

// Ends on time: a thread that sleeps is woken late, by 50 microseconds and more with the system's timer slack.
void sleep_until(Clock::time_point time) {
  const auto last_part = microseconds(80);
  if (time - Clock::now() > last_part) {
    const int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1);
    std::this_thread::sleep_until(time - last_part);
    prctl(PR_SET_TIMERSLACK, slack);
  }
  while (Clock::now() < time) std::this_thread::yield();
}

}  // namespace

bool Mark::is_reached() const { return stream->has_run(position); }
void Mark::wait() const { stream->run_until(position); }

Stream::Stream(c10::DeviceIndex device, c10::StreamId id, const Loss& loss) : device_(device), id_(id), loss_(loss) {}

std::chrono::microseconds Stream::random_delay() {
  const auto now = settings();
  if (now.seed == 0 || now.random_delay_us == 0) return {};
  if (seed_ != now.seed) {
    seed_ = now.seed;
    std::seed_seq parts{now.seed, static_cast<uint64_t>(device_), static_cast<uint64_t>(id_)};
    random_.seed(parts);
  }
  if (random_() % 3 != 0) return {};
  return microseconds(random_() % static_cast<uint64_t>(now.random_delay_us + 1));
}

uint64_t Stream::append(Task task) {
  uint64_t position = 0;
  bool wake = false, stopped = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    task.queued = Clock::now();
    task.losses = loss_.count;
    task.duration += random_delay();
    position = ++num_queued_;
    if (task.record) task.record->position = position;
    tasks_.push_back(std::move(task));
    stopped = stopped_;
    if (!stopped && !thread_.joinable()) thread_ = std::thread([this] { run_thread(); });
    wake = thread_sleeps_;
  }
  if (wake) queued_.notify_one();
  if (stopped) run_until(position);
  return position;
}

void Stream::enqueue(std::function<void()> work, microseconds duration, WhenLost when_lost) {
  append({std::move(work), duration, when_lost, {}, nullptr, nullptr});
}

std::shared_ptr<const Mark> Stream::record() {
  auto mark = std::make_shared<Mark>();
  mark->stream = this;
  mark->capture = capture_;
  append({nullptr, {}, WhenLost::kSkip, {}, nullptr, mark});
  return mark;
}

void Stream::wait_for(std::shared_ptr<const Mark> mark) {
  if (mark->stream == this || mark->is_reached()) return;
  append({nullptr, {}, WhenLost::kSkip, {}, std::move(mark), nullptr});
}

bool Stream::has_run(uint64_t position) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_ended_ >= position;
}

bool Stream::is_idle() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_ended_ == num_queued_;
}

size_t Stream::num_pending() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_queued_ - num_ended_;
}

void Stream::synchronize() {
  uint64_t last = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    last = num_queued_;
  }
  run_until(last);
}

void Stream::run_until(uint64_t position) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (num_ended_ < position) {
    if (running_)
      ended_.wait(lock);
    else
      run_next(lock);
  }
}

// The task's time follows from when it could begin, not from when a thread was there to run it.
void Stream::run_next(std::unique_lock<std::mutex>& lock) {
  running_ = true;
  {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    auto end = std::max(task.queued, busy_until_);
    lock.unlock();
    const auto is_lost = [&] { return loss_.now || loss_.count != task.losses; };
    if (task.wait_for && !is_lost()) {
      task.wait_for->wait();
      end = std::max(end, task.wait_for->reached);
    }
    end += task.duration;
    // In parts, so that the loss of the device ends a long task.
    while (task.duration.count() > 0 && !is_lost() && Clock::now() < end)
      sleep_until(std::min(end, Clock::now() + kLongestSleep));
    if (is_lost()) end = std::min(end, Clock::now());
    if (task.work && (!is_lost() || task.when_lost == WhenLost::kRun)) task.work();
    if (task.record) task.record->reached = end;
    busy_until_ = end;  // only who runs a task changes or reads it
  }
  lock.lock();
  running_ = false;
  ++num_ended_;
  ended_.notify_all();
}

void Stream::run_thread() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopped_) {
    if (tasks_.empty()) {
      thread_sleeps_ = true;
      queued_.wait(lock);
      thread_sleeps_ = false;
    } else if (running_) {
      ended_.wait(lock);
    } else if (const auto early = tasks_.front().queued + kHeadStart - Clock::now(); early.count() > 0) {
      // By the system's clock, because the thread sanitizer does not know waits by the steady one.
      queued_.wait_until(lock, std::chrono::system_clock::now() + early);
    } else {
      run_next(lock);
    }
  }
}

void Stream::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  queued_.notify_all();
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace simulated_device
