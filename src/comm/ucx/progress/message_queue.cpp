#include "comm/ucx/progress/message_queue.hpp"

#include <list>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/progress/copy_result.hpp"

namespace accel::comm::ucx {

std::optional<PointToPoint> MessageQueue::next() {
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_.throw_if_known();
  return waiting_.pop();
}

bool MessageQueue::progress() {
  bool moved = false;
  while (waiting_.may_have_calls()) {
    auto call = next();
    if (!call) break;
    post(std::move(*call));
    moved = true;
  }
  return (!posted_.empty() && finish_posted()) || moved;
}

void MessageQueue::post(PointToPoint call) {
  const auto bytes = call.memory.nbytes();
  try {
    if (posted_.size() == posted_.capacity()) posted_.reserve(2 * posted_.size() + 1);  // before UCX has the message
    call.message =
        call.receives
            ? transport_.receive(call.peer, call.memory.data_ptr(), bytes, Channel::kPointToPoint, call.tag)
            : transport_.send(call.peer, call.memory.const_data_ptr(), bytes, Channel::kPointToPoint, call.tag);
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

bool MessageQueue::finish_posted() {
  bool moved = false;
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
    moved = true;
    if (broken) std::rethrow_exception(error);
  }
  return moved;
}

void MessageQueue::complete(PointToPoint& call, std::exception_ptr error) const noexcept {
  try {
    if (!error && call.receives) take_received(call);
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  // Who waits may count on the memory.
  call.memory.reset();
  call.target.reset();
  call.work->complete(std::move(error), call.thread_state);
}

void MessageQueue::take_received(PointToPoint& call) const {
  const size_t expected = call.memory.nbytes(), received = call.message.received();
  call.work->set_source(call.message.source());
  if (received != expected)
    throw CollectiveError(
        CollectiveFailure::kMismatch, rank_,
        text(call.work->title(), " on rank ", rank_, ": rank ", call.message.source(), " sent ", received,
             " bytes and the tensor has ", expected, "; both must have the same shape and dtype"));
  if (call.target.defined()) copy_result(call.target, call.memory);
}

void MessageQueue::fail_all(const std::exception_ptr& error, CallMemory& memory) noexcept {
  std::list<PointToPoint> waiting;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting = waiting_.take_all();
  }
  for (auto& call : posted_) transport_.cancel(call.message);
  transport_.settle();
  std::vector<PointToPoint> posted;
  posted.swap(posted_);
  for (auto& call : posted) {
    memory.keep(call.memory);
    call.work->complete(error, call.thread_state);
  }
  for (auto& call : waiting) call.work->complete(error, call.thread_state);
}

}  // namespace accel::comm::ucx
