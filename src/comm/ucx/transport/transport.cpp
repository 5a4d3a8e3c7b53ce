// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/transport/transport.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm::ucx {
namespace {

// 3 bits channel, 14 bits the number by which the receiver knows the group, 16 bits sending rank, 31 bits sequence
// number (or the caller's tag).
constexpr int kSequenceBits = 31;
constexpr int kRankBits = 16;
constexpr int kChannelBits = 3;
constexpr uint64_t kAllBits = ~uint64_t{0};
constexpr uint64_t kOfferBit = uint64_t{1} << (kGroupNumberBits + kRankBits + kSequenceBits);
static_assert(kChannelBits + kGroupNumberBits + kRankBits + kSequenceBits == 64, "all bits have a meaning");

uint64_t make_tag(Channel channel, uint32_t group, int source, uint64_t sequence) {
  const uint64_t low = sequence & ((uint64_t{1} << kSequenceBits) - 1);
  const uint64_t high = static_cast<uint64_t>(channel) << kGroupNumberBits | group;
  return (high << kRankBits | static_cast<uint64_t>(source)) << kSequenceBits | low;
}

int tag_source(uint64_t tag) { return static_cast<int>((tag >> kSequenceBits) & (kMaxRanks - 1)); }

}  // namespace

Message& Message::operator=(Message&& other) noexcept {
  if (this == &other) return *this;
  release();
  handle_ = std::exchange(other.handle_, nullptr);
  job_ranks_ = other.job_ranks_;
  rank_ = other.rank_;
  peer_ = other.peer_;
  source_ = other.source_;
  received_ = other.received_;
  is_point_to_point_ = other.is_point_to_point_;
  receives_ = other.receives_;
  is_offer_ = other.is_offer_;
  return *this;
}

void Message::release() {
  if (handle_) ucp_request_free(handle_);
  handle_ = nullptr;
}

bool Message::finish_if_done() {
  ucs_status_t status;
  if (receives_) {
    ucp_tag_recv_info_t info;
    status = ucp_tag_recv_request_test(handle_, &info);
    if (status == UCS_INPROGRESS) return false;
    if (status == UCS_OK) {
      source_ = tag_source(info.sender_tag);
      received_ = info.length;
      is_offer_ = is_point_to_point_ && (info.sender_tag & kOfferBit) != 0;
    }
  } else {
    status = ucp_request_check_status(handle_);
    if (status == UCS_INPROGRESS) return false;
  }
  release();
  finish(status);
  return true;
}

void Message::finish(ucs_status_t status) {
  if (status == UCS_OK) return;
  const auto with = peer_ == kAnyRank ? std::string("any rank") : text("rank ", (*job_ranks_)[peer_]);
  const int rank = (*job_ranks_)[rank_];
  if (status == UCS_ERR_MESSAGE_TRUNCATED)
    throw CollectiveError(CollectiveFailure::kMismatch, rank,
                          text("the message from ", with, " is longer than the tensor that rank ", rank,
                               " receives into; both must have the same shape and dtype"));
  const bool lost = status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT ||
                    status == UCS_ERR_UNREACHABLE || status == UCS_ERR_REJECTED || status == UCS_ERR_NOT_CONNECTED;
  throw CollectiveError(lost ? CollectiveFailure::kPeerLost : failure_of(status), rank,
                        text("the connection of rank ", rank, " with ", with, " failed: ", ucs_status_string(status)));
}

Message Transport::send(int peer, const void* data, size_t bytes, Channel channel, uint64_t sequence) {
  const Connection& connection = connections_[peer];
  ucp_request_param_t parameters{};
  void* const handle = ucp_tag_send_nbx(connection.endpoint->handle, data, bytes,
                                        make_tag(channel, connection.group, rank_, sequence), &parameters);
  Message message;
  message.job_ranks_ = &job_ranks_;
  message.rank_ = rank_;
  message.peer_ = peer;
  if (UCS_PTR_IS_ERR(handle)) message.finish(UCS_PTR_STATUS(handle));
  message.handle_ = handle;
  return message;
}

Message Transport::receive(int peer, void* data, size_t bytes, Channel channel, uint64_t sequence) {
  ucp_request_param_t parameters{};
  // Who sent how much is asked of the request: a receive that ends at once has none, and UCX 1.13 then says nothing
  // about it.
  if (channel == Channel::kPointToPoint) parameters.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  const uint64_t source_bits = static_cast<uint64_t>(kMaxRanks - 1) << kSequenceBits;
  uint64_t mask = peer == kAnyRank ? kAllBits & ~source_bits : kAllBits;
  if (channel == Channel::kPointToPoint) mask &= ~kOfferBit;
  void* const handle = ucp_tag_recv_nbx(worker_.handle(), data, bytes,
                                        make_tag(channel, group_, std::max(peer, 0), sequence), mask, &parameters);
  Message message;
  message.job_ranks_ = &job_ranks_;
  message.rank_ = rank_;
  message.peer_ = peer;
  message.receives_ = true;
  message.is_point_to_point_ = channel == Channel::kPointToPoint;
  if (UCS_PTR_IS_ERR(handle)) message.finish(UCS_PTR_STATUS(handle));
  message.handle_ = handle;
  return message;
}

void Transport::cancel(Message& message) {
  if (message.handle_ && message.receives_) ucp_request_cancel(worker_.handle(), message.handle_);
}

void Transport::settle() {
  constexpr int kRounds = 1000;
  for (int round = 0; round < kRounds && worker_.progress(); round++) {
  }
}

std::vector<int> Transport::broken() const {
  std::vector<int> ranks;
  if (!worker_.has_broken_endpoints()) return ranks;
  for (size_t peer = 0; peer < connections_.size(); peer++)
    if (const Endpoint* const endpoint = connections_[peer].endpoint; endpoint != nullptr && endpoint->is_broken)
      ranks.push_back(static_cast<int>(peer));
  return ranks;
}

}  // namespace accel::comm::ucx
