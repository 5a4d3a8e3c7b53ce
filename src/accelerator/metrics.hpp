// What the ranks compute of their batches, joined for a metric. @accelerate gather_for_metrics
#pragma once

#include <ATen/core/ivalue.h>

#include "comm/rounds.hpp"
#include "state/gradient_state.hpp"

namespace accel::accelerator {

// Tensors are joined; a tree with other leaves is gathered as an object. Of what has one row or item for each row of
// the batch, only those stay that are no repetitions; of anything else the first ones, as many as the batch has.
comm::Round metrics_round(const comm::Communicator& communicator, const c10::IValue& value,
                          const state::LoaderProgress& batch);

inline c10::IValue gather_for_metrics(comm::Communicator& communicator, const c10::IValue& value,
                                      const state::LoaderProgress& batch) {
  return comm::run(communicator, metrics_round(communicator, value, batch));
}

}  // namespace accel::accelerator
