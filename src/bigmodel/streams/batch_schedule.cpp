// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/streams/batch_schedule.hpp"

#include <ATen/ThreadLocalState.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <optional>
#include <thread>

#include "os/background_thread.hpp"
#include "precision/autocast.hpp"

namespace accel::bigmodel {
namespace {

thread_local BatchSchedule* current_schedule = nullptr;

// The settings of this thread that a forward depends on, to be applied on other threads.
class ThreadSettings {
 public:
  explicit ThreadSettings(c10::Device device)
      : cpu_(precision::AutocastState::current(c10::kCPU)), device_(precision::AutocastState::current(device.type())) {
    if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }

  // `body` has them.
  void run(const std::function<void()>& body) const {
    const at::ThreadLocalStateGuard same_state(state_);
    const precision::AutocastStateScope cpu(cpu_), device(device_);
    if (stream_) c10::impl::VirtualGuardImpl(stream_->device_type()).exchangeStream(*stream_);
    body();
  }

 private:
  at::ThreadLocalState state_;
  precision::AutocastState cpu_, device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace

BatchSchedule* BatchSchedule::current() { return current_schedule; }

void BatchSchedule::run(const std::vector<std::function<void()>>& bodies, c10::Device device) {
  BatchSchedule schedule(bodies.size());
  const ThreadSettings settings(device);
  std::vector<std::exception_ptr> failures(bodies.size());
  const auto run_body = [&](size_t index) {
    current_schedule = &schedule;
    {
      std::unique_lock lock(schedule.mutex_);
      schedule.take_turn(lock);
    }
    try {
      settings.run(bodies[index]);
    } catch (...) {
      failures[index] = std::current_exception();
    }
    schedule.leave(/*has_turn=*/true);
  };
  std::vector<std::thread> threads;
  std::exception_ptr no_thread;
  for (size_t i = 0; i < bodies.size(); i++) {
    if (no_thread == nullptr) try {
        threads.push_back(background_thread("accel_batch", [&run_body, i] { run_body(i); }));
        continue;
      } catch (...) {
        no_thread = std::current_exception();
      }
    schedule.leave(/*has_turn=*/false);
  }
  for (std::thread& thread : threads) thread.join();
  if (no_thread != nullptr) std::rethrow_exception(no_thread);
  for (const std::exception_ptr& failure : failures)
    if (failure != nullptr) std::rethrow_exception(failure);
}

void BatchSchedule::take_turn(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !is_taken_; });
  is_taken_ = true;
}

void BatchSchedule::give_turn() {
  is_taken_ = false;
  changed_.notify_all();
}

void BatchSchedule::begin_block() {
  std::unique_lock lock(mutex_);
  const uint64_t step = step_;
  arrived_++;
  if (arrived_ == waiting_for_) end_step();
  give_turn();
  changed_.wait(lock, [&] { return step_ != step; });
  take_turn(lock);
}

void BatchSchedule::keep(BlockStream& stream, size_t block) {
  const std::lock_guard lock(mutex_);
  kept_.emplace_back(&stream, block);
}

void BatchSchedule::leave(bool has_turn) {
  const std::lock_guard lock(mutex_);
  waiting_for_--;
  if (arrived_ == waiting_for_) end_step();
  if (has_turn) give_turn();
}

void BatchSchedule::end_step() {
  for (const auto& [stream, block] : kept_) stream->release(block);
  kept_.clear();
  arrived_ = 0;
  step_++;
  changed_.notify_all();
}

}  // namespace accel::bigmodel
