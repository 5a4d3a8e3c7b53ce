// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/host/host_segment.hpp"

#include <algorithm>

#include "comm/ucx/host/page_size.hpp"

namespace accel::comm::ucx {
namespace {

constexpr size_t kControlBytes = kPage;
constexpr size_t kSlotBytes = HostSegment::kBlockBytes + HostSegment::kResultBytes;
// For the blocks of a preamble. Only pages that are written use memory.
constexpr size_t kGreetingBytes = 1 << 20;

}  // namespace

size_t HostSegment::inline_limit() const {
  const auto ranks = static_cast<size_t>(ranks_);
  static_assert(kLeastInlineBytes * kMaxRanks <= kGreetingBytes, "all have room");
  return std::max(kLeastInlineBytes, kGreetingBytes / (ranks * ranks) / kPage * kPage);
}

size_t HostSegment::file_size() { return kControlBytes + kDepth * kSlotBytes + 2 * (kControlBytes + kGreetingBytes); }

HostSegment::HostSegment(const std::vector<int>& files, int position, int rank)
    : rank_(position), ranks_(static_cast<int>(files.size())), next_step_(kFirstStep), next_preamble_(kFirstStep) {
  static_assert(sizeof(Control) <= kControlBytes, "the slots follow it");
  for (const int file : files) {
    regions_.emplace_back(file, file_size(), rank);
    starts_.push_back(regions_.back().data());
  }
}

char* HostSegment::slot(int rank, uint32_t step) const {
  return starts_[static_cast<size_t>(rank)] + kControlBytes + step % kDepth * kSlotBytes;
}

char* HostSegment::preamble(int rank, uint32_t number) const {
  return starts_[static_cast<size_t>(rank)] + kControlBytes + kDepth * kSlotBytes +
         number % 2 * (kControlBytes + kGreetingBytes);
}

FutexWait HostSegment::begin_sleep(int peer, Stage stage) const {
  Counter& theirs = counter(peer, stage);
  theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
  return {&theirs.steps, theirs.steps.load(std::memory_order_seq_cst)};
}

void HostSegment::end_sleep(int peer, Stage stage) const {
  counter(peer, stage).sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace accel::comm::ucx
