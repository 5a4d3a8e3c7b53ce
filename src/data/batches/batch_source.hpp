// SPDX-License-Identifier: Apache-2.0
// The interface of what reads the batches of one epoch.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "state/gradient_state.hpp"

namespace accel::data {

// A position in an epoch, from which another number of ranks can continue too.
struct EpochPosition {
  int64_t samples = 0;  // that all ranks together have got, without repetitions
  // For iterable datasets: the number of items taken from each of the former iterators, and how many of the items that
  // were left then have been returned since.
  std::vector<int64_t> readers;
  int64_t rest = 0;
};

struct Batch {
  c10::IValue value;
  state::LoaderProgress progress;  // while the batch is in use
  EpochPosition end;               // the position after the batch
  int64_t count = 0;               // items that were read for it here
  bool more = false;               // whether more items follow
};

class BatchSource {
 public:
  using Take = std::function<std::optional<Batch>()>;

  virtual ~BatchSource() = default;
  // Batch `index` of those that are left, from 0; nothing at the end. A batch that failed may be read again.
  virtual std::optional<Batch> read(int64_t index) = 0;
  // Whether several threads may read at once, in any order. Otherwise batches are read in order, by one thread.
  virtual bool is_random_access() const { return false; }
  // Whether this rank reads anything that a thread could read ahead.
  virtual bool reads() const { return true; }
  // Turns what was read into this rank's batch, on the loop's thread and in order: where ranks depend on each other
  // they communicate here, failures included. `take` returns the batch that was read.
  virtual std::optional<Batch> deliver(const Take& take) { return take(); }
};

}  // namespace accel::data
