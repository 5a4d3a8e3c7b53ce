#include "comm/work.hpp"

#include <optional>
#include <utility>

namespace accel::comm {

void Work::complete(c10::IValue result, std::exception_ptr error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    result_ = std::move(result);
    error_ = std::move(error);
    ended_ = true;
  }
  changed_.notify_all();
}

bool Work::ended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_;
}

bool Work::wait(std::chrono::milliseconds timeout) const {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return ended_; });
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

}  // namespace accel::comm
