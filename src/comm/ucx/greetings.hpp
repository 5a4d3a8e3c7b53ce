// The first round of every collective: each rank tells every other one what it called, with its block where that is
// small. Through the host segment where there is one, else by messages: straight to all others where they are few, else
// handed on from rank to rank.
#pragma once

#include <cstddef>

#include "comm/ucx/collective.hpp"
#include "comm/ucx/session.hpp"

namespace accel::comm::ucx {

// A block up to this size travels with the greeting; in the host segment see HostSegment::inline_limit().
constexpr size_t kInlineLimit = 8192;

// Whether every rank gets the same block from this one.
bool sends_one_block(Operation operation);

class Greetings {
 public:
  // Returns when all ranks have said the same; throws kMismatch on all of them otherwise.
  Greetings(const Collective& collective, Session& session);

  // Blocks up to this size came with the greetings; none where tensors lie in shared memory, to be reduced in place.
  size_t block_limit() const { return in_shared_memory_ > 0 ? 0 : block_limit_; }
  // The block of `peer` for this rank, if it came.
  const char* payload(int peer) const { return message(peer) + payload_offset_; }
  // all_reduce of tensors that all lie in memory that the ranks share.
  bool all_in_shared_memory() const { return in_shared_memory_ == session_.size(); }
  Place place(int peer) const;
  // The largest block of all ranks.
  size_t largest_block() const;

 private:
  static constexpr size_t kFixedBytes = sizeof(Header) + sizeof(Place);

  const char* message(int peer) const {
    if (segment_ != nullptr) return segment_->greeting(peer, number_);
    // In the order in which they follow this rank.
    const int size = session_.size(), distance = (peer + size - session_.rank()) % size;
    return received_ + slot_ * static_cast<size_t>(distance);
  }
  const Header* header(int peer) const;
  // What a rank told about its parts of an all_to_all: see Collective::splits.
  const int64_t* splits(int peer) const;
  static size_t longest_head(int ranks);
  // Writes what precedes the blocks.
  void write(char* message) const;
  // Writes the block of a rank where it is small; returns how many bytes.
  size_t write_block(int peer, char* to) const;
  void publish();
  void exchange_messages();
  void hand_on();
  void check() const;
  void check_splits() const;

  const Collective& collective_;
  Session& session_;
  const Place own_;
  const size_t split_bytes_;
  HostSegment* const segment_;
  // In the segment a greeting is one for all, so the blocks stand side by side where each rank gets another one.
  size_t payload_offset_;
  const size_t block_limit_;
  int in_shared_memory_ = 0;  // ranks whose tensors lie there
  uint32_t number_ = 0;
  size_t slot_ = 0;
  char* received_ = nullptr;
};

}  // namespace accel::comm::ucx
