// SPDX-License-Identifier: Apache-2.0
// The two callbacks of an application's object that is saved and loaded, as functions of the engine.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

#include "accel.h"
#include "capi/calls/callback.hpp"
#include "capi/values/value.hpp"

namespace accel::capi {

inline std::function<c10::IValue()> save_function(const Callback<accel_save_state_fn>& save) {
  return [save] {
    accel_value_t value = ACCEL_VALUE_INIT;
    const DisposeValue disposed(value);
    save.checked("save", &value);
    return to_ivalue(value, "out_state");
  };
}

inline std::function<void(const c10::IValue&)> load_function(const Callback<accel_load_state_fn>& load) {
  return [load](const c10::IValue& saved) {
    accel_value_t value = from_ivalue(saved);
    const DisposeValue disposed(value);
    load.checked("load", &value);
  };
}

}  // namespace accel::capi
