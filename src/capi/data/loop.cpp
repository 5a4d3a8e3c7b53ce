// SPDX-License-Identifier: Apache-2.0
// Section 9: loops over batches that the application reads itself.
#include <memory>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "state/batch_loop.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_loop_begin(accel_state_t* state, accel_loop_t** out) {
  return guarded(__func__, out, [&] {
    const state::State& engine = accelerator_of(state)->state();
    const auto& ranks = engine.groups().data_parallel();
    return std::make_shared<state::BatchLoop>(engine.gradient_state(), ranks->size(), ranks->rank());
  });
}

ACCEL_FUNCTION accel_status_t accel_loop_set_batch(accel_loop_t* batches, const int64_t* rows, size_t n_rows,
                                                   int64_t remainder, int32_t end_of_dataloader) {
  return guarded(__func__, [&] {
    state::BatchLoop& engine = *check(batches, "batches").loop;
    engine.set_batch(read_array(rows, n_rows, "rows"), remainder, read_flag(end_of_dataloader, "end_of_dataloader"));
  });
}

ACCEL_FUNCTION accel_loop_t* accel_loop_retain(accel_loop_t* batches) {
  return retain_handle(__func__, batches, "batches");
}

ACCEL_FUNCTION void accel_loop_release(accel_loop_t* batches) { release_handle(batches); }

}  // namespace accel::capi
