// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: which modules of a model keep their inputs instead of their activations.
// @accelerate fsdp2_apply_ac
#pragma once

#include "config/generated/settings/module/activation_checkpointing.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// For the modules that the settings name, or the module itself if they name none. Nothing is changed on an error.
void checkpoint_activations(Module& module, const ActivationCheckpointingSettings& settings);

}  // namespace accel::nn
