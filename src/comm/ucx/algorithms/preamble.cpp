// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/preamble.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/host/page_size.hpp"

namespace accel::comm::ucx {
namespace {

constexpr size_t kLine = 64;
constexpr int kMaxDirectRanks = 16;      // with more, preambles are forwarded
constexpr size_t kForwardedLimit = 512;  // largest block in a preamble that is forwarded

size_t limit_of_blocks(const Collective& collective, const Session& session) {
  if (session.segment() != nullptr) return session.segment()->inline_limit();
  if (session.size() <= kMaxDirectRanks) return kInlineLimit;
  return traits_of(collective.header.kind).sends_one_block() ? kForwardedLimit : 0;
}

// All ranks have the same answer: one that wants copies of what others show has no address.
bool may_use_shared_memory(const Collective& collective, const Session& session) {
  const CollectiveKind kind = collective.header.kind;
  return (kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter ||
          kind == CollectiveKind::kAllGather) &&
         session.segment() != nullptr;
}

// Blocks of a reduce_scatter must be behind each other, in the order of the ranks.
RemoteAddress remote_address_of(const Collective& collective, Session& session) {
  if (!may_use_shared_memory(collective, session)) return {};
  const auto& first = collective.outgoing[0];
  if (first.bytes <= kInlineLimit) return {};
  if (collective.header.kind == CollectiveKind::kAllGather)
    return collective.shown.blocks != nullptr ? session.memory().remote_address(first.data, first.bytes)
                                              : RemoteAddress{};
  for (size_t i = 1; i < collective.outgoing.size(); i++)
    if (collective.outgoing[i].data != first.data + i * first.bytes || collective.outgoing[i].bytes != first.bytes)
      return {};
  return session.memory().remote_address(first.data, first.bytes * collective.outgoing.size());
}

}  // namespace

PreambleExchange::PreambleExchange(const Collective& collective, Session& session)
    : collective_(collective),
      session_(session),
      own_(remote_address_of(collective, session)),
      split_bytes_(collective.splits.size() * sizeof(int64_t)),
      segment_(session.segment()),
      payload_offset_(round_up(kFixedBytes + split_bytes_, kLine)),
      block_limit_(limit_of_blocks(collective, session)) {
  if (segment_ != nullptr)
    publish();
  else if (session.size() <= kMaxDirectRanks)
    exchange_messages();
  else
    exchange_by_doubling();
  check();
  if (split_bytes_) check_splits();
  for (int peer = 0; may_use_shared_memory(collective, session) && peer < session.size(); peer++)
    in_shared_memory_ += remote_address(peer).segment != 0 ? 1 : 0;
}

// The length does not depend on the operation, so that ranks with mismatched calls can read each other's headers.
size_t PreambleExchange::longest_head(int ranks) {
  return round_up(kFixedBytes + 2 * sizeof(int64_t) * static_cast<size_t>(ranks), kLine);
}

void PreambleExchange::write(char* message) const {
  std::memcpy(message, &collective_.header, sizeof(Header));
  std::memcpy(message + sizeof(Header), &own_, sizeof(RemoteAddress));
  if (split_bytes_) std::memcpy(message + kFixedBytes, collective_.splits.data(), split_bytes_);
}

size_t PreambleExchange::write_block(int peer, char* to) const {
  const auto block = collective_.outgoing.empty() ? Outgoing{} : block_for(collective_, peer);
  if (block.bytes == 0 || block.bytes > block_limit_ || own_.segment != 0) return 0;
  std::memcpy(to, block.data, block.bytes);
  return block.bytes;
}

void PreambleExchange::publish() {
  const int rank = session_.rank(), size = session_.size();
  number_ = segment_->begin_preamble();
  char* const message = segment_->preamble(rank, number_);
  write(message);
  const size_t stride = traits_of(collective_.header.kind).sends_one_block() ? 0 : block_limit_;
  for (int peer = 0; peer < size; peer++) {
    if (peer == rank) continue;
    const size_t written = write_block(peer, message + payload_offset_ + stride * static_cast<size_t>(peer));
    if (stride == 0 && written) break;
  }
  payload_offset_ += stride * static_cast<size_t>(rank);
  segment_->advance(HostSegment::Stage::kPreamble, number_);
  for (int offset = 1; offset < size; offset++)
    session_.wait_for((rank + offset) % size, HostSegment::Stage::kPreamble, number_);
}

void PreambleExchange::exchange_messages() {
  const int rank = session_.rank(), size = session_.size();
  slot_ = longest_head(size) + kInlineLimit;
  received_ = session_.buffers().preambles.reserve(2 * slot_ * static_cast<size_t>(size));
  char* const sent = received_ + slot_ * static_cast<size_t>(size);
  for (int step = 1; step < size; step++) {
    const int peer = (rank + size - step) % size;
    session_.receive(peer, received_ + slot_ * static_cast<size_t>(size - step), slot_, Channel::kHeader);
  }
  for (int step = 1; step < size; step++) {
    const int peer = (rank + step) % size;
    char* const message = sent + slot_ * static_cast<size_t>(peer);
    write(message);
    const size_t written = write_block(peer, message + payload_offset_);
    session_.send(peer, message, payload_offset_ + written, Channel::kHeader);
  }
  session_.wait_all();
}

// Recursive doubling with a larger factor: in each round a rank sends all preambles that it has to kFactor - 1 others.
// Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
void PreambleExchange::exchange_by_doubling() {
  constexpr int kFactor = 4;
  const int rank = session_.rank(), size = session_.size();
  slot_ = longest_head(size) + kForwardedLimit;
  received_ = session_.buffers().preambles.reserve(slot_ * static_cast<size_t>(size));
  write(received_);
  write_block(std::max(collective_.header.root, 0), received_ + payload_offset_);
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

const Header* PreambleExchange::header(int peer) const {
  return peer == session_.rank() ? &collective_.header : reinterpret_cast<const Header*>(message(peer));
}

RemoteAddress PreambleExchange::remote_address(int peer) const {
  if (peer == session_.rank()) return own_;
  RemoteAddress address;
  std::memcpy(&address, message(peer) + sizeof(Header), sizeof(RemoteAddress));
  return address;
}

size_t PreambleExchange::largest_block() const {
  int64_t largest = collective_.header.numel;
  for (int peer = 0; split_bytes_ && peer < session_.size(); peer++)
    largest = std::max(largest, *std::max_element(splits(peer), splits(peer) + session_.size()));
  return static_cast<size_t>(largest) * collective_.element_size;
}

const int64_t* PreambleExchange::splits(int peer) const {
  return peer == session_.rank() ? collective_.splits.data()
                                 : reinterpret_cast<const int64_t*>(message(peer) + kFixedBytes);
}

void PreambleExchange::check() const {
  bool equal = true;
  for (int peer = 0; peer < session_.size(); peer++) equal = equal && are_equal(*header(peer), collective_.header);
  if (equal) return;
  std::vector<const Header*> headers;
  for (int peer = 0; peer < session_.size(); peer++) headers.push_back(header(peer));
  throw CollectiveError(CollectiveFailure::kMismatch, session_.rank(), find_mismatch(headers, session_.job_ranks()));
}

void PreambleExchange::check_splits() const {
  const int size = session_.size();
  for (int from = 0; from < size; from++)
    for (int to = 0; to < size; to++)
      if (splits(from)[to] != splits(to)[size + from])
        throw CollectiveError(
            CollectiveFailure::kMismatch, session_.rank(),
            text(session_.title(), ": rank ", session_.job_ranks()[from], " sends ", splits(from)[to],
                 " elements to rank ", session_.job_ranks()[to], ", which expects ", splits(to)[size + from],
                 "; the input splits of one must be the output splits of the other"));
}

}  // namespace accel::comm::ucx
