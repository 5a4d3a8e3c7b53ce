// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/message_queue.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/host/peer_memory.hpp"
#include "comm/ucx/host/status_page.hpp"
#include "comm/ucx/progress/copy_result.hpp"

namespace accel::comm::ucx {
namespace {

// UCX sends what is smaller as fast, and the sender is done with it earlier.
constexpr size_t kLeastOfferedBytes = 128 << 10;
constexpr size_t kBytesAtOnce = 4 << 20;  // that are read before other calls have their turn
// Answers to an offer.
constexpr char kTaken = 1;
constexpr char kUnreadable = 2;  // the sender is to send the message
constexpr uint64_t kLargestTag = 0x7FFFFFFF;

}  // namespace

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
  try {
    if (posted_.size() == posted_.capacity()) posted_.reserve(2 * posted_.size() + 1);  // before UCX has the message
    start(call);
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

void MessageQueue::start(PointToPoint& call) {
  const size_t bytes = call.memory.nbytes();
  if (call.receives) {
    // There is room for an offer, also if the tensor is too small for what is offered.
    if (bytes < sizeof(Offer)) call.offer_memory = at::empty({static_cast<int64_t>(sizeof(Offer))}, at::kByte);
    at::Tensor& memory = bytes < sizeof(Offer) ? call.offer_memory : call.memory;
    call.message = transport_.receive(call.peer, memory.data_ptr(), memory.nbytes(), Channel::kPointToPoint, call.tag);
  } else if (bytes < kLeastOfferedBytes || !peers_.reads_memory(call.peer)) {
    call.message = transport_.send(call.peer, call.memory.const_data_ptr(), bytes, Channel::kPointToPoint, call.tag);
  } else {
    const Offer offer{reinterpret_cast<uintptr_t>(call.memory.const_data_ptr()), bytes, next_offer_};
    next_offer_ = (next_offer_ + 1) & kLargestTag;
    call.offer_memory = at::empty({static_cast<int64_t>(sizeof(Offer) + sizeof(char))}, at::kByte);
    char* const data = static_cast<char*>(call.offer_memory.mutable_data_ptr());
    std::memcpy(data, &offer, sizeof(Offer));
    call.offered = transport_.send(call.peer, data, sizeof(Offer), Channel::kOffer, call.tag);
    call.message = transport_.receive(call.peer, data + sizeof(Offer), sizeof(char), Channel::kTaken, offer.number);
  }
}

bool MessageQueue::finish_posted() {
  bool moved = false;
  for (size_t i = 0; i < posted_.size();) {
    std::exception_ptr error;
    bool broken = false;
    try {
      if (!advance(posted_[i])) {
        moved = moved || posted_[i].phase == PointToPoint::Phase::kReading;
        i++;
        continue;
      }
      error = posted_[i].error;
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

bool MessageQueue::advance(PointToPoint& call) {
  if (call.phase == PointToPoint::Phase::kPosted) {
    try {
      if (!call.message.done()) return false;
      if (!call.receives) return !is_asked_for(call) || send_unread(call);
      take_arrived(call);
    } catch (const CollectiveError& failure) {
      if (!call.message.is_offer() || !group_survives(failure.failure())) throw;
      call.error = std::current_exception();  // of another length: the sender is notified that it is taken
    }
    if (!call.message.is_offer()) return true;
    call.sender = call.message.source();
    call.phase = PointToPoint::Phase::kReading;
  }
  if (call.phase == PointToPoint::Phase::kReading) {
    const bool is_over = call.error != nullptr, is_taken = is_over || read_part(call);
    if (is_taken && !is_over && call.bytes_read < call.offer.bytes) return false;
    answer(call, is_taken);
    call.phase = PointToPoint::Phase::kEnding;
  }
  return call.message.done();
}

void MessageQueue::answer(PointToPoint& call, bool is_taken) {
  Message answer =
      transport_.send(call.sender, is_taken ? &kTaken : &kUnreadable, sizeof(char), Channel::kTaken, call.offer.number);
  if (is_taken) {
    call.message = std::move(answer);
    return;
  }
  call.offered = std::move(answer);
  call.peer = call.sender;  // whose end would be in vain to wait for
  call.message = transport_.receive(call.sender, call.memory.data_ptr(), call.memory.nbytes(), Channel::kUnread,
                                    call.offer.number);
}

bool MessageQueue::is_asked_for(const PointToPoint& call) {
  if (!call.offer_memory.defined()) return false;
  return static_cast<const char*>(call.offer_memory.const_data_ptr())[sizeof(Offer)] == kUnreadable;
}

bool MessageQueue::send_unread(PointToPoint& call) {
  std::memcpy(&call.offer, call.offer_memory.const_data_ptr(), sizeof(Offer));
  call.message = transport_.send(call.peer, call.memory.const_data_ptr(), call.memory.nbytes(), Channel::kUnread,
                                 call.offer.number);
  call.phase = PointToPoint::Phase::kEnding;
  return call.message.done();
}

void MessageQueue::take_arrived(PointToPoint& call) const {
  const Message& message = call.message;
  const bool is_tiny = call.offer_memory.defined();
  const void* const data = is_tiny ? call.offer_memory.const_data_ptr() : call.memory.const_data_ptr();
  size_t received = message.received();
  if (message.is_offer()) {
    std::memcpy(&call.offer, data, sizeof(Offer));
    received = call.offer.bytes;
  }
  const size_t expected = call.memory.nbytes();
  call.work->set_received(message.source(), received);
  if (call.may_be_shorter ? received > expected : received != expected)
    throw CollectiveError(
        CollectiveFailure::kMismatch, peers_.job_ranks().own(),
        text(call.work->title(), " on rank ", peers_.job_ranks().own(), ": rank ", peers_.job_ranks()[message.source()],
             " sent ", received, " bytes and the tensor has ", expected, "; both must have the same shape and dtype"));
  if (is_tiny && received != 0) std::memcpy(call.memory.data_ptr(), data, received);
}

// A sender that has ended, or has given up its calls, may have had other values there by now.
bool MessageQueue::read_part(PointToPoint& call) const {
  const size_t bytes = std::min(kBytesAtOnce, call.offer.bytes - call.bytes_read);
  const bool was_read = read_memory(peers_.process(call.sender), call.offer.address + call.bytes_read,
                                    static_cast<char*>(call.memory.data_ptr()) + call.bytes_read, bytes);
  const int reason = errno;
  if (has_ended(peers_.process_descriptor(call.sender)) || (!was_read && reason == ESRCH))
    throw CollectiveError(
        CollectiveFailure::kPeerLost, peers_.job_ranks().own(),
        text("rank ", peers_.job_ranks()[call.sender], " is lost during ", call.work->title(), ": its process ended"));
  if (const auto failure = peers_.status_page(call.sender)->failure())
    throw CollectiveError(kind_for_others(failure->kind), peers_.job_ranks().own(),
                          text("rank ", failure->rank, " gave up the group: ", failure->message));
  if (was_read) call.bytes_read += bytes;
  return was_read;
}

void MessageQueue::complete(PointToPoint& call, std::exception_ptr error) const noexcept {
  try {
    if (!error && call.target.defined()) copy_result(call.target, call.memory);
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  // Who waits may count on the memory.
  call.memory.reset();
  call.target.reset();
  call.work->complete(std::move(error), call.thread_state);
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
    if (call.offer_memory.defined()) memory.keep(call.offer_memory);
    call.work->complete(error, call.thread_state);
  }
  for (auto& call : waiting) call.work->complete(error, call.thread_state);
}

}  // namespace accel::comm::ucx
