// SPDX-License-Identifier: Apache-2.0
// Section 10: a batch through the stages of a model, which are on several ranks.
#include <ATen/core/ivalue.h>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/values/value.hpp"
#include "nn/module.hpp"
#include "parallel/pipelined_forward.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_pipeline_forward(accel_state_t* state, accel_module_t* stage,
                                                     const accel_value_t* batch, int64_t chunks, int64_t chunk_rows,
                                                     int64_t rounds, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const auto& owner = accelerator_of(state)->state();
    const nn::ModulePtr module = check(stage, "stage").module;
    const auto call = [&module](const c10::IValue& input) { return module->call({input}); };
    return from_ivalue(parallel::run_forward_pipeline(owner.communicator(), owner.device(),
                                                      batch == nullptr ? c10::IValue() : to_ivalue(*batch, "batch"),
                                                      {chunks, chunk_rows}, rounds, call));
  });
}

}  // namespace accel::capi
