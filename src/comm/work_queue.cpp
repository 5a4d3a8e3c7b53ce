#include "comm/work_queue.hpp"

#include <ATen/ThreadLocalState.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <iterator>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/background_thread.hpp"
#include "base/current_call.hpp"
#include "base/error.hpp"
#include "comm/side_stream.hpp"

namespace accel::comm {
namespace {

std::exception_ptr left_group() {
  return std::make_exception_ptr(Error(Status::kInvalidState, "the process group was destroyed; make a new state"));
}

}  // namespace

struct WorkQueue::Shared {
  struct Started {
    WorkQueue::Call call;
    std::shared_ptr<Work> work;
    const char* function;  // of the C API, which started it
    at::ThreadLocalState settings;
    std::optional<c10::Event> mark;  // what the device has to do before
  };

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::list<Started> calls;                    // which needs no memory to be emptied
  std::vector<std::shared_ptr<Work>> watched;  // under way, or with callbacks that nobody has run
  std::atomic<int64_t> open{0};                // calls that have not ended
  bool closed = false;
  std::optional<c10::DeviceType> device;
  std::optional<SideStream> side;  // made with the thread
  std::thread thread;

  // Under the mutex.
  void watch(const std::shared_ptr<Work>& work) {
    const auto forgotten = [&](const std::shared_ptr<Work>& other) {
      return other == work || (other->ended() && !other->has_callbacks());
    };
    watched.erase(std::remove_if(watched.begin(), watched.end(), forgotten), watched.end());
    watched.push_back(work);
  }

  static c10::IValue run_call(Started& started, const std::optional<SideStream>& side) {
    const at::ThreadLocalStateGuard settings(started.settings);
    const CurrentCall current(started.function);
    if (!started.mark) return started.call();
    const SideStream::Guard stream(*side, *started.mark);
    c10::IValue result = started.call();
    stream.synchronize();
    return result;
  }
};

WorkQueue::WorkQueue(std::optional<c10::DeviceType> device) : shared_(std::make_shared<Shared>()) {
  shared_->device = device;
}

WorkQueue::~WorkQueue() {
  close();
  join();
}

std::shared_ptr<Work> WorkQueue::start(Call call) {
  auto work = std::make_shared<Work>();
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  if (shared_->closed) std::rethrow_exception(left_group());
  if (shared_->device && !shared_->side) shared_->side.emplace(*shared_->device);
  std::optional<c10::Event> mark;
  if (shared_->side) mark.emplace(shared_->side->mark());
  if (!shared_->thread.joinable())
    shared_->thread = background_thread("accel-comm", [shared = shared_] { run(shared); });
  shared_->calls.push_back({std::move(call), work, CurrentCall::function(), at::ThreadLocalState(), std::move(mark)});
  shared_->watch(work);
  shared_->open.fetch_add(1);
  shared_->changed.notify_all();
  return work;
}

void WorkQueue::watch(const std::shared_ptr<Work>& work) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->watch(work);
}

void WorkQueue::end_watched(Work& work, std::exception_ptr error) {
  work.complete({}, std::move(error));
  // A thread that found the work open holds the mutex until it waits.
  { const std::lock_guard<std::mutex> lock(shared_->mutex); }
  shared_->changed.notify_all();
}

void WorkQueue::run(const std::shared_ptr<Shared>& shared) {
  const c10::ParallelGuard no_pool(true);  // copies of results must not start a second thread pool
  const auto next = [&]() -> std::optional<Shared::Started> {
    std::unique_lock<std::mutex> lock(shared->mutex);
    shared->changed.wait(lock, [&] { return shared->closed || !shared->calls.empty(); });
    if (shared->calls.empty()) return std::nullopt;
    std::optional<Shared::Started> started(std::move(shared->calls.front()));
    shared->calls.pop_front();
    return started;
  };
  while (auto started = next()) {
    c10::IValue result;
    std::exception_ptr error;
    try {
      result = Shared::run_call(*started, shared->side);
    } catch (...) {
      error = std::current_exception();
    }
    started->call = nullptr;  // what it held is free before anybody hears of the end
    started->work->complete(std::move(result), std::move(error));
    {
      const std::lock_guard<std::mutex> lock(shared->mutex);
      shared->open.fetch_sub(1);
    }
    shared->changed.notify_all();
  }
}

void WorkQueue::wait_until_idle() const {
  if (shared_->open.load() == 0) return;
  std::unique_lock<std::mutex> lock(shared_->mutex);
  if (shared_->thread.get_id() == std::this_thread::get_id()) return;
  shared_->changed.wait(lock, [this] { return shared_->open.load() == 0; });  // each ends by its own deadline
}

bool WorkQueue::progress(std::chrono::microseconds longest) {
  const auto end = std::chrono::steady_clock::now() + longest;
  std::vector<std::shared_ptr<Work>> ended;
  std::unique_lock<std::mutex> lock(shared_->mutex);
  auto& watched = shared_->watched;
  const auto ready = [&] {
    return std::any_of(watched.begin(), watched.end(),
                       [](const auto& work) { return work->ended() && work->has_callbacks(); });
  };
  const auto under_way = [&] {
    return std::any_of(watched.begin(), watched.end(), [](const auto& work) { return !work->ended(); });
  };
  shared_->changed.wait_until(lock, end, [&] { return ready() || !under_way(); });
  std::copy_if(watched.begin(), watched.end(), std::back_inserter(ended),
               [](const auto& work) { return work->ended(); });
  lock.unlock();
  for (const auto& work : ended) work->deliver();
  lock.lock();
  return under_way();
}

void WorkQueue::close() {
  std::list<Shared::Started> unbegun;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->closed = true;
    unbegun.swap(shared_->calls);
    shared_->open.fetch_sub(static_cast<int64_t>(unbegun.size()));
  }
  for (Shared::Started& started : unbegun) started.work->complete({}, left_group());
  shared_->changed.notify_all();
}

void WorkQueue::join() {
  if (!shared_->thread.joinable()) return;
  if (shared_->thread.get_id() == std::this_thread::get_id())
    shared_->thread.detach();
  else
    shared_->thread.join();
}

}  // namespace accel::comm
