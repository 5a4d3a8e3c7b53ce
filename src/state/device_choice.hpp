// Choice of the device of a rank.
#pragma once

#include <c10/core/Device.h>

#include "config/state_settings.hpp"

namespace accel::state {

// ACCELERATE_TORCH_DEVICE if set; otherwise a GPU if there is one and LibTorch's CUDA library can be loaded, unless the
// settings ask for the CPU; otherwise the CPU. The GPU is chosen by the local rank and made current.
c10::Device choose_device(const StateSettings& settings);

}  // namespace accel::state
