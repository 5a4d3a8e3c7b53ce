// SPDX-License-Identifier: Apache-2.0
// An object that accel_prepare() gets or returns.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>

#include "config/generated/settings/prepare/prepare_model.hpp"
#include "data/loader.hpp"
#include "nn/module.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedules/scheduler.hpp"

namespace accel::accelerator {

// One object to prepare, or a prepared one: exactly one pointer is set.
struct PreparedObject {
  nn::ModulePtr model;
  PrepareModelSettings model_settings;
  c10::IValue sample_inputs = {};  // of Preparation::prepare_model()
  std::shared_ptr<optim::Optimizer> optimizer;
  std::shared_ptr<data::Loader> loader;
  std::shared_ptr<optim::Scheduler> scheduler;
  std::optional<bool> device_placement;
};

}  // namespace accel::accelerator
