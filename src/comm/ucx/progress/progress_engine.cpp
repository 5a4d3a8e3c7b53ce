// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/progress_engine.hpp"

#include <c10/util/ParallelGuard.h>

#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/progress/process_exit.hpp"
#include "os/background_thread.hpp"

namespace accel::comm::ucx {
namespace {

constexpr auto kFlushTime = Deadline::Milliseconds(1000);
constexpr auto kFlushInterval = std::chrono::milliseconds(100);

}  // namespace

ProgressEngine::Membership ProgressEngine::start(int rank, int size, bool stays_on_host) {
  if (!watch_process_exit())
    throw CollectiveError(CollectiveFailure::kBackend, rank,
                          text("rank ", rank, " cannot be notified when its process exits; free some memory"));
  const auto engine = std::make_shared<ProgressEngine>(rank, size, stays_on_host);
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

ProgressEngine::ProgressEngine(int rank, int size, bool stays_on_host)
    : loop_(rank, size, stays_on_host, claim_, requests_, groups_) {}

ProgressEngine::~ProgressEngine() {
  if (thread_.joinable()) thread_.detach();  // only if the thread itself drops the last reference
}

// Sends what is queued first. If called by the owner itself, the rest is left to the destructor.
void ProgressEngine::stop() {
  std::unique_lock<std::mutex> lock(claim_.mutex());
  stop_ = true;
  loop_.notify();
  if (claim_.recall_lender()) loop_.recall();
  claim_.changed().notify_all();
  if (thread_.get_id() == std::this_thread::get_id() || claim_.is_taken_here()) return;
  lock.unlock();
  thread_.join();
  if (kept_.empty()) loop_.worker().flush(Deadline(kFlushTime));  // otherwise a group has failed
  for (CallMemory& memory : kept_) memory.buffers.messages.clear();
  loop_.release_worker();
  kept_.clear();
}

void ProgressEngine::run(const std::function<void()>& function) {
  Request request{&function};
  {
    std::unique_lock<std::mutex> lock(claim_.mutex());
    if (claim_.is_taken_here()) {
      lock.unlock();
      return function();
    }
    requests_.add(request);
    lock.unlock();
    wake_up();
    lock.lock();
    claim_.changed().wait(lock, [&] { return request.done || !claim_.is_taken(); });
    if (!request.done) {
      claim_.take();
      lock.unlock();
      requests_.run_all();
      release();
    }
  }
  if (request.error) std::rethrow_exception(request.error);
}

uint32_t ProgressEngine::new_group_number() {
  const std::lock_guard<std::mutex> lock(claim_.mutex());
  return groups_.new_number();
}

void ProgressEngine::add(uint32_t number, const std::shared_ptr<ProgressedGroup>& group) {
  run([&] {
    loop_.watch(*group);
    const std::lock_guard<std::mutex> lock(claim_.mutex());
    groups_.add(number, group);
  });
}

void ProgressEngine::remove(ProgressedGroup& group) {
  run([&] {
    {
      const std::lock_guard<std::mutex> lock(claim_.mutex());
      groups_.remove(group);
    }
    loop_.forget(group);
  });
}

void ProgressEngine::release() {
  const std::lock_guard<std::mutex> lock(claim_.mutex());
  claim_.give_back();
  if (claim_.is_lent()) {
    if (claim_.recall_lender()) loop_.recall();
    if (has_urgent_work()) loop_.notify();
    if (!loop_.is_notified()) return;
  }
  if (stop_ || has_work()) claim_.changed().notify_all();
}

void ProgressEngine::wake_up() {
  loop_.notify();
  claim_.changed().notify_all();
  loop_.wake_up();
}

void ProgressEngine::run_thread() {
  const c10::ParallelGuard no_pool(true);  // copies of results must not start a second thread pool
  std::unique_lock<std::mutex> lock(claim_.mutex());
  const auto called = [this] { return stop_ || (!claim_.is_taken() && has_work()); };
  while (!stop_) {
    // Bytes for other hosts may still have to be handed to the network.
    if (!groups_.reach_other_hosts())
      claim_.changed().wait(lock, called);
    else
      claim_.changed().wait_for(lock, kFlushInterval, called);
    stop_if_process_exits();
    if (stop_ || claim_.is_taken()) continue;
    claim_.take();
    lock.unlock();
    loop_.progress_until_idle([] { return false; }, ProgressLoop::Sleep::kLending);
    release();
    lock.lock();
  }
}

}  // namespace accel::comm::ucx
