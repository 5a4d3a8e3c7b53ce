// SPDX-License-Identifier: Apache-2.0
// Preamble: the first round of every collective, in which all ranks exchange the headers of their calls, with the
// blocks if they are small. Through the host segment if there is one, otherwise by messages: directly to all ranks if
// they are few, otherwise by recursive doubling.
#pragma once

#include <cstddef>

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/host/host_segment.hpp"
#include "comm/ucx/host/shared_memory.hpp"

namespace accel::comm::ucx {

// Blocks up to this size are sent with the preamble; for the host segment see HostSegment::inline_limit().
constexpr size_t kInlineLimit = HostSegment::kLeastInlineBytes;

class PreambleExchange {
 public:
  // Returns when all ranks have made the same call; otherwise throws kMismatch on all of them.
  PreambleExchange(const Collective& collective, Session& session);

  // Blocks up to this size came with the preamble; none if tensors are in shared memory, where they are reduced in
  // place.
  size_t block_limit() const { return in_shared_memory_ > 0 ? 0 : block_limit_; }
  // The block of `peer` for this rank, if it came.
  const char* payload(int peer) const { return message(peer) + payload_offset_; }
  // Whether it is an all_reduce or a reduce_scatter of tensors that are all in shared memory, or an all_gather that
  // shows them there.
  bool all_in_shared_memory() const { return in_shared_memory_ == session_.size(); }
  RemoteAddress remote_address(int peer) const;
  // The largest block of all ranks.
  size_t largest_block() const;

 private:
  static constexpr size_t kFixedBytes = sizeof(Header) + sizeof(RemoteAddress);

  const char* message(int peer) const {
    if (segment_ != nullptr) return segment_->preamble(peer, number_);
    // Ordered by distance from this rank.
    const int size = session_.size(), distance = (peer + size - session_.rank()) % size;
    return received_ + slot_ * static_cast<size_t>(distance);
  }
  const Header* header(int peer) const;
  // A rank's splits: see Collective::splits.
  const int64_t* splits(int peer) const;
  static size_t longest_head(int ranks);
  // Writes everything before the blocks.
  void write(char* message) const;
  // Writes the block of a rank if it is small; returns the number of bytes.
  size_t write_block(int peer, char* to) const;
  void publish();
  void exchange_messages();
  void exchange_by_doubling();
  void check() const;
  void check_splits() const;

  const Collective& collective_;
  Session& session_;
  const RemoteAddress own_;
  const size_t split_bytes_;
  HostSegment* const segment_;
  // In the segment all ranks read one preamble, so blocks that differ per rank are stored side by side.
  size_t payload_offset_;
  const size_t block_limit_;
  int in_shared_memory_ = 0;  // number of ranks whose tensors are there
  uint32_t number_ = 0;
  size_t slot_ = 0;
  char* received_ = nullptr;
};

}  // namespace accel::comm::ucx
