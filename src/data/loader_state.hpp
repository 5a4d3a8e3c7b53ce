// SPDX-License-Identifier: Apache-2.0
// The state_dict of a loader: its position in an epoch.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>

#include "data/batches/batch_source.hpp"

namespace accel::data {

struct LoaderState {
  int64_t epoch = 0;
  int64_t batches = 0;          // of the epoch, that this rank has got
  std::optional<int64_t> seed;  // of the order
  EpochPosition position;
};

// {epoch, batches, samples, seed, readers, rest}
c10::IValue to_value(const LoaderState& state);
LoaderState read_loader_state(const c10::IValue& value);

}  // namespace accel::data
