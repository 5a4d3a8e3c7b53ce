// SPDX-License-Identifier: Apache-2.0
// The model of a call that changes what its parameters are.
#pragma once

#include "accel.h"
#include "accelerator/prepared_model.hpp"
#include "base/error.hpp"
#include "capi/calls/handles.hpp"

namespace accel::capi {

// A prepared model and its optimizer choose what is trained when they are made. `otherwise` ends the message: ", or
// ...".
inline nn::Module& unprepared_model(accel_module_t* module, const char* otherwise = "") {
  const nn::ModulePtr& model = check(module, "module").module;
  require(accelerator::unwrap_model(model) == model, Status::kInvalidState,
          "module is a prepared model, whose parameters do not change; expected the model before accel_prepare_model()",
          otherwise);
  return *model;
}

}  // namespace accel::capi
