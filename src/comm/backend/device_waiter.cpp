// SPDX-License-Identifier: Apache-2.0
#include "comm/backend/device_waiter.hpp"

#include <ATen/ThreadLocalState.h>
#include <c10/util/ParallelGuard.h>

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/current_call.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/backend/communication_stream.hpp"
#include "os/background_thread.hpp"
#include "os/polling.hpp"

namespace accel::comm {

struct DeviceWaiter::Shared {
  struct Posted {
    Wait wait;
    std::shared_ptr<Work> work;
    const char* function;  // of the C API, which started it
    at::ThreadLocalState settings;
    const CommunicationStream* stream;  // null without a device
  };

  // A work that failed: copies that are queued behind it may still write to its tensors. A stream that never ends must
  // not hold up the error.
  struct Failed {
    Wait wait;  // owns the tensors
    c10::Event end;
  };

  explicit Shared(std::chrono::milliseconds timeout) : timeout(timeout) {}

  const std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Posted> posted;
  bool closed = false;
  std::list<CommunicationStream> streams;  // one for each device, made with its first work
  std::list<Failed> failed;                // of the thread alone
  std::thread thread;

  const CommunicationStream& stream_of(c10::Device device) {
    for (const CommunicationStream& stream : streams)
      if (stream.device() == device) return stream;
    return streams.emplace_back(device);
  }

  void wait(Posted& one) {
    const at::ThreadLocalStateGuard settings(one.settings);
    const CurrentCall current(one.function);
    if (one.stream == nullptr) return one.wait();
    const CommunicationStream::Guard stream(*one.stream);
    try {
      one.wait();
    } catch (...) {
      hold(one);
      throw;
    }
    const c10::Event end = one.stream->end();
    const Deadline deadline(timeout);
    for (Polling polling; !end.query(); polling.pause())
      require(!deadline.passed(), Status::kTimeout, "the communication stream of ", one.stream->device(),
              " has not come to its end after ", timeout.count(), " ms");
  }

  // The error that is under way is reported, whatever becomes of the event.
  void hold(Posted& one) noexcept {
    try {
      failed.push_back({std::move(one.wait), one.stream->end()});
    } catch (const std::exception&) {  // the device is lost, and nothing writes any more
    }
  }

  // At the end of the group, which waits for a while and then leaves memory that is still written to where it is.
  void end_failed() noexcept {
    constexpr auto kLongest = std::chrono::seconds(5);
    const auto end = std::chrono::steady_clock::now() + kLongest;
    for (free_failed(); !failed.empty() && std::chrono::steady_clock::now() < end; free_failed())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!failed.empty()) static_cast<void>(std::make_unique<std::list<Failed>>(std::move(failed)).release());
  }

  void free_failed() noexcept {
    failed.remove_if([](const Failed& work) {
      try {
        return work.end.query();
      } catch (const std::exception&) {
        return true;  // the device is lost, and nothing writes any more
      }
    });
  }
};

DeviceWaiter::DeviceWaiter(std::chrono::milliseconds timeout) : shared_(std::make_shared<Shared>(timeout)) {}

DeviceWaiter::~DeviceWaiter() { join(); }

std::shared_ptr<Work> DeviceWaiter::start(const std::function<Wait()>& post, std::optional<c10::Device> device) {
  auto work = std::make_shared<Work>();
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  const CommunicationStream* const side = device ? &shared_->stream_of(*device) : nullptr;
  if (!shared_->thread.joinable())
    shared_->thread = background_thread("accel-comm", [shared = shared_] { run(shared); });
  shared_->posted.push_back({{}, work, CurrentCall::function(), at::ThreadLocalState(), side});
  try {
    std::optional<c10::Event> mark;
    std::optional<CommunicationStream::Guard> stream;
    if (side != nullptr) {
      mark.emplace(side->mark());
      stream.emplace(*side, *mark);
    }
    shared_->posted.back().wait = post();
  } catch (...) {
    shared_->posted.pop_back();
    throw;
  }
  shared_->changed.notify_all();
  return work;
}

void DeviceWaiter::run(const std::shared_ptr<Shared>& shared) {
  const c10::ParallelGuard no_pool(true);  // copies of results must not start a second thread pool
  while (true) {
    std::list<Shared::Posted> next;
    {
      std::unique_lock<std::mutex> lock(shared->mutex);
      shared->changed.wait(lock, [&] { return shared->closed || !shared->posted.empty(); });
      if (shared->posted.empty()) break;
      next.splice(next.begin(), shared->posted, shared->posted.begin());
    }
    shared->free_failed();
    std::exception_ptr error;
    try {
      shared->wait(next.front());
    } catch (...) {
      error = std::current_exception();
    }
    next.front().wait = nullptr;  // what it held is free before anybody is notified of a good end
    next.front().work->complete({}, error);
  }
  shared->end_failed();
}

void DeviceWaiter::join() {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->closed = true;
  }
  shared_->changed.notify_all();
  if (!shared_->thread.joinable()) return;
  if (shared_->thread.get_id() == std::this_thread::get_id())
    shared_->thread.detach();
  else
    shared_->thread.join();
}

}  // namespace accel::comm
