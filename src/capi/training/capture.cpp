// SPDX-License-Identifier: Apache-2.0
// Section 10: steps that a device records.
#include <memory>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/capture/step_module.hpp"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/capture.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_step_capture(accel_state_t* state, accel_module_t* step,
                                                 const accel_capture_options_t* options, accel_module_t** out) {
  return guarded(__func__, out, [&] {
    const auto accelerator = accelerator_of(state);
    const nn::ModulePtr module = check(step, "step").module;
    return std::make_shared<accelerator::StepModule>(accelerator, module, read_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_status_t accel_step_capture_counts(const accel_module_t* step, int64_t* out_steps,
                                                        int64_t* out_captures, int64_t* out_replays) {
  return guarded(__func__, [&] {
    const auto* const captured = dynamic_cast<const accelerator::StepModule*>(check(step, "step").module.get());
    require(captured != nullptr, Status::kInvalidArgument,
            "step is not a captured step; expected the module that accel_step_capture() gave");
    const auto& counts = captured->counts();
    if (out_steps != nullptr) *out_steps = counts.steps;
    if (out_captures != nullptr) *out_captures = counts.captures;
    if (out_replays != nullptr) *out_replays = counts.replays;
  });
}

}  // namespace accel::capi
