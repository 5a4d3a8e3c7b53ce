// SPDX-License-Identifier: Apache-2.0
// Choice of the device of a rank.
#pragma once

#include <c10/core/Device.h>

#include "config/state_settings.hpp"

namespace accel::state {

// Whether the settings say which device it is; else it is chosen.
bool names_device(const StateSettings& settings);

// ACCELERATE_TORCH_DEVICE if set; otherwise the first accelerator that can be used (tensor::default_accelerator()),
// unless the settings ask for the CPU; otherwise the CPU. An accelerator without an index is chosen by the local rank.
// It is made current on this thread.
c10::Device choose_device(const StateSettings& settings);

}  // namespace accel::state
