// The algorithms. A collective is described by the blocks that go to and come from each rank, and by how they are
// combined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "comm/ucx/header.hpp"
#include "comm/ucx/reduction.hpp"

namespace accel::comm::ucx {

class Session;

struct Outgoing {
  const char* data = nullptr;
  size_t bytes = 0;
};

struct Incoming {
  char* data = nullptr;
  size_t bytes = 0;
};

struct Collective {
  Header header;
  // Block p goes to, or comes from, rank p; that of this rank itself is copied. For all_reduce and reduce there is one
  // of each: the whole tensor and where the result goes. For reduce_scatter, incoming holds the result alone.
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  // Of tensors, and of what was reduced of some ranks' tensors; null where that is not possible.
  Reducer reduce, combine;
  size_t element_size = 1;
  // all_to_all only, compared between the ranks: how many elements go to each rank, then how many come from each.
  std::vector<int64_t> splits;
};

// all_reduce and reduce: there is one block, the whole tensor.
bool combines_whole(Operation operation);
// What rank `peer` gets; nothing where it wants none.
Outgoing block_for(const Collective& collective, int peer);

// What a rank sends to itself, or what has arrived elsewhere.
inline void copy_block(const Incoming& to, const char* from) {
  if (to.bytes && to.data != from) std::memmove(to.data, from, to.bytes);
}

// This rank's part of a result to which other ranks add theirs with `combine`.
void begin_partial(const Collective& collective, const Incoming& result, const char* tensor);

// Returns when this rank's part is done. Throws CollectiveError; after kMismatch all ranks have thrown it and the next
// collective may follow.
void run(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
