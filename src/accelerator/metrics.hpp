// SPDX-License-Identifier: Apache-2.0
// Gathers results of all ranks for a metric, without the repeated rows of the last batch. @accelerate
// gather_for_metrics
#pragma once

#include <ATen/core/ivalue.h>

#include "comm/rounds.hpp"
#include "state/gradient_state.hpp"

namespace accel::accelerator {

// Tensors are concatenated; a tree with other leaves is gathered as an object. Values with one row or item for each row
// of the batch keep only those of rows that are not repeated; others keep as many first rows as the batch has.
comm::Round metrics_round(const comm::Communicator& communicator, const c10::IValue& value,
                          const state::LoaderProgress& batch);

// Gathers a list, whose items are gathered as objects whatever they are.
comm::Round object_metrics_round(const comm::Communicator& communicator, const c10::IValue& items,
                                 const state::LoaderProgress& batch);

// The progress of the active loader.
inline state::LoaderProgress batch_in_hand(const state::GradientState& gradient_state) {
  const auto progress = gradient_state.active();
  return progress != nullptr ? *progress : state::LoaderProgress();
}

inline c10::IValue gather_for_metrics(comm::Communicator& communicator, const c10::IValue& value,
                                      const state::LoaderProgress& batch) {
  return comm::run(communicator, metrics_round(communicator, value, batch));
}

}  // namespace accel::accelerator
