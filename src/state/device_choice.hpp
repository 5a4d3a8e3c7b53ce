// Which device a rank computes on.
#pragma once

#include <c10/core/Device.h>

#include "config/state_settings.hpp"

namespace accel::state {

// ACCELERATE_TORCH_DEVICE; else a GPU when LibTorch's CUDA library can be loaded and one is there; else, or when the
// settings ask for it, the CPU. A GPU is chosen by the local rank and made current.
c10::Device choose_device(const StateSettings& settings);

}  // namespace accel::state
