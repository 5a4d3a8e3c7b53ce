// Where a loader's batches of one epoch come from.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "state/gradient_state.hpp"

namespace accel::data {

// How far an epoch is. Another number of ranks can go on from it.
struct EpochPosition {
  int64_t samples = 0;  // that all ranks together were handed, without repetitions
  // Of streams: the items that were taken from each of the readers that there were, and how many of what those had left
  // were handed out since.
  std::vector<int64_t> readers;
  int64_t rest = 0;
};

struct Batch {
  c10::IValue value;
  state::LoaderProgress progress;  // while it is in hand
  EpochPosition end;               // behind it
  int64_t count = 0;               // items that were read for it here
  bool more = false;               // whether there are any behind them
};

class BatchSource {
 public:
  using Take = std::function<std::optional<Batch>()>;

  virtual ~BatchSource() = default;
  // The batch `index` of those that are left, from 0; nothing at the end. One that failed may be asked for again.
  virtual std::optional<Batch> read(int64_t index) = 0;
  // Whether several threads may read at once, in any order. Otherwise one reads after the other.
  virtual bool is_random_access() const { return false; }
  // Whether there is anything to read here that a thread could do ahead of time.
  virtual bool reads() const { return true; }
  // Makes of what was read what this rank gets, on the loop's thread and in order: where ranks depend on each other
  // they talk here, and hear of each other's failures. `take` gives the batch that was read.
  virtual std::optional<Batch> deliver(const Take& take) { return take(); }
};

}  // namespace accel::data
