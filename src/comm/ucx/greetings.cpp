#include "comm/ucx/greetings.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm::ucx {
namespace {

constexpr size_t kLine = 64;
constexpr int kMostAtOnce = 16;         // ranks that all send to all others
constexpr size_t kHandedOnLimit = 512;  // of a block, where each greeting passes through the hands of several ranks

// What goes to a rank with the greeting; nothing where it is large.
Outgoing small_block(const Collective& collective, int peer, size_t limit = kInlineLimit) {
  const auto& header = collective.header;
  if (collective.outgoing.empty()) return {};
  Outgoing block;
  if (!combines_whole(header.operation))
    block = collective.outgoing[peer];
  else if (header.root < 0 || header.root == peer)
    block = collective.outgoing[0];
  return block.bytes <= limit ? block : Outgoing{};
}

size_t limit_of_blocks(const Collective& collective, Session& session) {
  if (session.segment() != nullptr || session.size() <= kMostAtOnce) return kInlineLimit;
  return sends_one_block(collective.header.operation) ? kHandedOnLimit : 0;
}

void copy_block(char* to, const Outgoing& block) {
  if (block.bytes) std::memcpy(to, block.data, block.bytes);
}

Place place_of(const Collective& collective, Session& session) {
  if (collective.header.operation != Operation::kAllReduce || session.segment() == nullptr) return {};
  const auto& block = collective.outgoing[0];
  return block.bytes > kInlineLimit ? session.locate(block.data, block.bytes) : Place{};
}

}  // namespace

bool sends_one_block(Operation operation) {
  switch (operation) {
    case Operation::kScatter:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
      return false;
    default:
      return true;
  }
}

bool combines_whole(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce;
}

Greetings::Greetings(const Collective& collective, Session& session)
    : collective_(collective),
      session_(session),
      own_(place_of(collective, session)),
      split_bytes_(collective.splits.size() * sizeof(int64_t)),
      segment_(session.segment()),
      payload_offset_(kFixedBytes + split_bytes_ +
                      (segment_ == nullptr || sends_one_block(collective.header.operation)
                           ? 0
                           : kInlineLimit * static_cast<size_t>(session.rank()))),
      block_limit_(limit_of_blocks(collective, session)) {
  if (segment_ != nullptr)
    publish();
  else if (session.size() <= kMostAtOnce)
    exchange_messages();
  else
    hand_on();
  check();
  if (split_bytes_) check_splits();
}

char* Greetings::write(char* message) const {
  std::memcpy(message, &collective_.header, sizeof(Header));
  std::memcpy(message + sizeof(Header), &own_, sizeof(Place));
  if (split_bytes_) std::memcpy(message + kFixedBytes, collective_.splits.data(), split_bytes_);
  return message + kFixedBytes + split_bytes_;
}

void Greetings::publish() {
  const int rank = session_.rank(), size = session_.size();
  number_ = segment_->begin_greeting();
  char* const blocks = write(segment_->greeting(rank, number_));
  const bool one_block = sends_one_block(collective_.header.operation);
  bool written = false;
  for (int peer = 0; peer < size && !(written && one_block); peer++) {
    if (peer == rank) continue;
    const auto block = small_block(collective_, peer);
    copy_block(blocks + (one_block ? 0 : kInlineLimit * static_cast<size_t>(peer)), block);
    written = block.bytes != 0;
  }
  segment_->advance(HostSegment::Stage::kGreeted, number_);
  for (int offset = 1; offset < size; offset++)
    session_.wait_for((rank + offset) % size, HostSegment::Stage::kGreeted, number_);
}

void Greetings::exchange_messages() {
  const int rank = session_.rank(), size = session_.size();
  slot_ = (kFixedBytes + split_bytes_ + kInlineLimit + kLine - 1) / kLine * kLine;
  received_ = session_.buffers().greetings.reserve(2 * slot_ * static_cast<size_t>(size));
  char* const sent = received_ + slot_ * static_cast<size_t>(size);
  for (int step = 1; step < size; step++) {
    const int peer = (rank + size - step) % size;
    session_.receive(peer, received_ + slot_ * static_cast<size_t>(size - step), slot_, Channel::kHeader);
  }
  for (int step = 1; step < size; step++) {
    const int peer = (rank + step) % size;
    const auto block = small_block(collective_, peer);
    char* const message = sent + slot_ * static_cast<size_t>(peer);
    copy_block(write(message), block);
    session_.send(peer, message, kFixedBytes + split_bytes_ + block.bytes, Channel::kHeader);
  }
  session_.wait_all();
}

// Recursive doubling, but by a larger factor: in each round a rank hands on all greetings that it has, and has as many
// times more of them. Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
void Greetings::hand_on() {
  constexpr int kFactor = 4;
  const int rank = session_.rank(), size = session_.size();
  // Of one size whatever was called, since ranks that disagree must understand each other.
  const size_t longest = std::max(kHandedOnLimit, 2 * sizeof(int64_t) * static_cast<size_t>(size));
  slot_ = (kFixedBytes + longest + kLine - 1) / kLine * kLine;
  received_ = session_.buffers().greetings.reserve(slot_ * static_cast<size_t>(size));
  copy_block(write(received_), small_block(collective_, std::max(collective_.header.root, 0), block_limit_));
  for (int known = 1; known < size; known *= kFactor) {
    for (int distance = known; distance < std::min(size, known * kFactor); distance += known) {
      const size_t bytes = slot_ * static_cast<size_t>(std::min(known, size - distance));
      session_.receive((rank + distance) % size, received_ + slot_ * static_cast<size_t>(distance), bytes,
                       Channel::kHeader);
      session_.send((rank + size - distance) % size, received_, bytes, Channel::kHeader);
    }
    session_.wait_all();
  }
}

const Header* Greetings::header(int peer) const {
  return peer == session_.rank() ? &collective_.header : reinterpret_cast<const Header*>(message(peer));
}

Place Greetings::place(int peer) const {
  Place place;
  std::memcpy(&place, message(peer) + sizeof(Header), sizeof(Place));
  return place;
}

bool Greetings::all_in_shared_memory() const {
  bool all = own_.segment != 0;
  for (int peer = 0; all && peer < session_.size(); peer++) all = peer == session_.rank() || place(peer).segment != 0;
  return all;
}

const int64_t* Greetings::splits(int peer) const {
  return peer == session_.rank() ? collective_.splits.data()
                                 : reinterpret_cast<const int64_t*>(message(peer) + kFixedBytes);
}

void Greetings::check() const {
  bool equal = true;
  for (int peer = 0; peer < session_.size(); peer++)
    equal = equal && std::memcmp(header(peer), &collective_.header, sizeof(Header)) == 0;
  if (equal) return;
  std::vector<const Header*> headers;
  for (int peer = 0; peer < session_.size(); peer++) headers.push_back(header(peer));
  throw CollectiveError(CollectiveFailure::kMismatch, session_.rank(), find_mismatch(headers));
}

void Greetings::check_splits() const {
  const int size = session_.size();
  for (int from = 0; from < size; from++)
    for (int to = 0; to < size; to++)
      if (splits(from)[to] != splits(to)[size + from])
        throw CollectiveError(CollectiveFailure::kMismatch, session_.rank(),
                              text(session_.title(), ": rank ", from, " sends ", splits(from)[to], " elements to rank ",
                                   to, ", which expects ", splits(to)[size + from],
                                   "; the input splits of one must be the output splits of the other"));
}

}  // namespace accel::comm::ucx
