// SPDX-License-Identifier: Apache-2.0
// BART (Lewis et al., "BART: Denoising Sequence-to-Sequence Pre-training", 2020) and mBART (Liu et al., "Multilingual
// Denoising Pre-training for Neural Machine Translation", 2020).
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// BartForConditionalGeneration.
ModulePtr build_bart(const Json& config);
// MBartForConditionalGeneration, which normalizes before its branches.
ModulePtr build_mbart(const Json& config);

}  // namespace accel::nn
