// SPDX-License-Identifier: Apache-2.0
#include "comm/work.hpp"

#include <atomic>
#include <optional>
#include <utility>

namespace accel::comm {

void Work::complete(c10::IValue result, const std::exception_ptr& error) noexcept {
  std::vector<Callback> continuations;
  std::function<void()> backend_wait;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    backend_wait.swap(backend_wait_);
  }
  backend_wait = nullptr;  // what it held is free before anybody is notified of the end
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    result_ = std::move(result);
    error_ = error;
    ended_ = true;
    continuations.swap(continuations_);
  }
  changed_.notify_all();
  for (const Callback& continuation : continuations) continuation(error);
}

bool Work::ended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_;
}

bool Work::wait(std::chrono::milliseconds timeout) const {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return ended_; });
}

void Work::wait() const {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return ended_; });
}

std::exception_ptr Work::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

c10::IValue Work::result() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  return result_;
}

void Work::synchronize() const {
  std::function<void()> backend_wait;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    backend_wait = backend_wait_;
  }
  try {
    if (backend_wait) return backend_wait();
  } catch (const std::exception&) {
    // The error of the call, below, names it.
  }
  wait();
  result();
}

void Work::set_backend_wait(std::function<void()> backend_wait) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!ending_) backend_wait_.swap(backend_wait);
}

void Work::on_end(Callback continuation) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!ended_) return continuations_.push_back(std::move(continuation));
  }
  continuation(error());
}

void Work::add_callback(Callback callback) {
  const std::lock_guard<std::mutex> lock(mutex_);
  callbacks_.push_back(std::move(callback));
}

bool Work::has_callbacks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !callbacks_.empty();
}

void Work::deliver() {
  const auto next = [this]() -> std::optional<Callback> {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!ended_ || callbacks_.empty()) return std::nullopt;
    Callback callback = std::move(callbacks_.front());
    callbacks_.erase(callbacks_.begin());
    return callback;
  };
  while (const auto callback = next()) (*callback)(error());
}

std::shared_ptr<Work> when_all(std::vector<std::shared_ptr<Work>> works) {
  if (works.size() == 1) return std::move(works.front());
  struct Open {
    std::vector<std::shared_ptr<Work>> works;
    std::atomic<size_t> count;
  };
  const auto open = std::make_shared<Open>();
  open->works = std::move(works);
  open->count = open->works.size() + 1;  // one until all are listened to
  auto all = std::make_shared<Work>();
  all->set_backend_wait([each = open->works] {
    std::exception_ptr first;
    for (const auto& work : each) {
      try {
        work->synchronize();
      } catch (const std::exception&) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  });
  const auto end = [open, all](const std::exception_ptr&) {
    if (open->count.fetch_sub(1) != 1) return;
    std::exception_ptr first;
    for (const auto& work : open->works)
      if (!first) first = work->error();
    open->works.clear();
    all->complete({}, first);
  };
  for (const auto& work : open->works) work->on_end(end);
  end(nullptr);
  return all;
}

}  // namespace accel::comm
