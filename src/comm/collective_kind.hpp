// The kinds of collectives and messages: what all parts of the engine, and its plugins, know of a kind by itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace accel::comm {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kGather,
  kReduceScatter,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive,
};

struct KindTraits {
  enum class Blocks : uint8_t {
    kWhole,  // one block, the whole tensor, which is combined with those of the other ranks
    kOne,    // a rank sends the same block to every rank
    kEach,   // a rank sends each rank a block of its own
  };

  CollectiveKind kind;
  const char* name;  // as in the names of the functions of accel.h
  Blocks blocks = Blocks::kOne;
  bool is_message = false;  // between two ranks, unordered with all other calls

  bool combines_whole() const { return blocks == Blocks::kWhole; }
  bool sends_one_block() const { return blocks != Blocks::kEach; }
};

inline constexpr KindTraits kCollectiveKinds[] = {
    {CollectiveKind::kAllReduce, "all_reduce", KindTraits::Blocks::kWhole},
    {CollectiveKind::kReduce, "reduce", KindTraits::Blocks::kWhole},
    {CollectiveKind::kBroadcast, "broadcast"},
    {CollectiveKind::kAllGather, "all_gather"},
    {CollectiveKind::kGather, "gather"},
    {CollectiveKind::kReduceScatter, "reduce_scatter", KindTraits::Blocks::kEach},
    {CollectiveKind::kScatter, "scatter", KindTraits::Blocks::kEach},
    {CollectiveKind::kAllToAll, "all_to_all", KindTraits::Blocks::kEach},
    {CollectiveKind::kBarrier, "wait_for_everyone"},
    {CollectiveKind::kSend, "send", KindTraits::Blocks::kOne, true},
    {CollectiveKind::kReceive, "recv", KindTraits::Blocks::kOne, true},
};

inline const KindTraits& traits_of(CollectiveKind kind) { return kCollectiveKinds[static_cast<size_t>(kind)]; }

constexpr bool kinds_are_in_order() {
  size_t next = 0;
  for (const KindTraits& row : kCollectiveKinds)
    if (static_cast<size_t>(row.kind) != next++) return false;
  return next == static_cast<size_t>(CollectiveKind::kReceive) + 1;
}
static_assert(kinds_are_in_order(), "a kind is the index of its row");

}  // namespace accel::comm
