// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/posted_work.hpp"

#include <optional>
#include <utility>

#include "base/current_call.hpp"
#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {
namespace {

// With the exception that is handled.
void fail_future(c10::ivalue::Future& future) noexcept {
  try {
    future.setErrorIfNeeded(std::current_exception());
  } catch (...) {  // from a callback
  }
}

}  // namespace

UcxWork::UcxWork(std::shared_ptr<WorkProgress> group, int rank, c10d::OpType operation, std::string name,
                 std::vector<at::Tensor> outputs)
    : NotifyingWork(rank, operation), group_(std::move(group)), name_(std::move(name)), outputs_(std::move(outputs)) {}

UcxWork::UcxWork(std::shared_ptr<WorkProgress> group, int rank, c10d::OpType operation, MessageName name,
                 std::vector<at::Tensor> outputs)
    : NotifyingWork(rank, operation), group_(std::move(group)), message_(name), outputs_(std::move(outputs)) {}

std::string MessageName::text() const {
  const std::string other = rank == kAnyRank ? "any rank" : accel::text("rank ", rank);
  return accel::text(receives ? "recv from " : "send to ", other, " with tag ", tag);
}

std::string UcxWork::title() const {
  if (message_) return message_->text();
  return sequence_ == kNoSequence ? name_ : text(call_name(call_, name_), " #", sequence_);
}

bool UcxWork::wait(std::chrono::milliseconds timeout) {
  group_->progress_until_complete(*this);
  std::unique_lock<std::mutex> lock(mutex_);
  const auto completed = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, completed);  // ends by the deadline of the call itself
  } else if (!cv_.wait_for(lock, timeout, completed)) {
    throw CollectiveError(CollectiveFailure::kTimeout, rank_,
                          text(title(), " on rank ", rank_, " is not done after ", timeout.count(), " ms"));
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void UcxWork::abort() { group_->abort(text(title(), " was aborted on rank ", rank_)); }

c10::intrusive_ptr<c10::ivalue::Future> UcxWork::getFuture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (completed_) mark(*future_, exception_);  // nobody can have added a callback yet
  }
  return future_;
}

void UcxWork::on_end(OnEnd callback) {
  std::vector<at::Tensor> released;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!completed_) {
      on_end_ = std::move(callback);
      return;
    }
    if (!future_) released.swap(outputs_);
  }
  released.clear();
  callback(exception_);
}

void UcxWork::complete(std::exception_ptr error, const std::unique_ptr<at::ThreadLocalState>& state) noexcept {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  OnEnd callback;
  std::vector<at::Tensor> released;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    completed_ = true;
    exception_ = std::move(error);
    future = future_;
    callback = std::move(on_end_);
    if (callback && !future) released.swap(outputs_);
  }
  released.clear();
  cv_.notify_all();
  std::optional<at::ThreadLocalStateGuard> guard;
  std::exception_ptr told = exception_;
  try {
    if (state && (callback || future)) guard.emplace(*state);
  } catch (const std::exception&) {
    told = std::current_exception();
  }
  if (callback) callback(told);
  if (!future) return;
  try {
    mark(*future, told);
  } catch (...) {  // no memory for its value, or from a callback
    fail_future(*future);
  }
}

void UcxWork::mark(c10::ivalue::Future& future, const std::exception_ptr& error) const {
  if (error)
    future.setError(error);
  else
    future.markCompleted(c10::IValue(outputs_));
}

}  // namespace accel::comm::ucx
