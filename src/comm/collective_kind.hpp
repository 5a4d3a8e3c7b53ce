// SPDX-License-Identifier: Apache-2.0
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
  enum Property : uint8_t {
    kInPlace = 1,       // one tensor is read and written
    kGathers = 2,       // the result has a block of each rank
    kShapesDiffer = 4,  // the tensors of the ranks may have different shapes
    kMessage = 8,       // between two ranks, unordered with all other calls
  };

  CollectiveKind kind;
  const char* name;  // as in the names of the functions of accel.h
  Blocks blocks = Blocks::kOne;
  uint8_t properties = 0;

  bool combines_whole() const { return blocks == Blocks::kWhole; }
  bool sends_one_block() const { return blocks != Blocks::kEach; }
  bool is_in_place() const { return (properties & kInPlace) != 0; }
  bool gathers() const { return (properties & kGathers) != 0; }
  bool shapes_may_differ() const { return (properties & kShapesDiffer) != 0; }
  bool is_message() const { return (properties & kMessage) != 0; }
};

inline constexpr KindTraits kCollectiveKinds[] = {
    {CollectiveKind::kAllReduce, "all_reduce", KindTraits::Blocks::kWhole, KindTraits::kInPlace},
    {CollectiveKind::kReduce, "reduce", KindTraits::Blocks::kWhole, KindTraits::kInPlace},
    {CollectiveKind::kBroadcast, "broadcast", KindTraits::Blocks::kOne, KindTraits::kInPlace},
    {CollectiveKind::kAllGather, "all_gather", KindTraits::Blocks::kOne, KindTraits::kGathers},
    {CollectiveKind::kGather, "gather", KindTraits::Blocks::kOne, KindTraits::kGathers},
    {CollectiveKind::kReduceScatter, "reduce_scatter", KindTraits::Blocks::kEach},
    {CollectiveKind::kScatter, "scatter", KindTraits::Blocks::kEach},
    {CollectiveKind::kAllToAll, "all_to_all", KindTraits::Blocks::kEach,
     KindTraits::kGathers | KindTraits::kShapesDiffer},
    {CollectiveKind::kBarrier, "wait_for_everyone"},
    {CollectiveKind::kSend, "send", KindTraits::Blocks::kOne, KindTraits::kMessage},
    {CollectiveKind::kReceive, "recv", KindTraits::Blocks::kOne, KindTraits::kMessage},
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
