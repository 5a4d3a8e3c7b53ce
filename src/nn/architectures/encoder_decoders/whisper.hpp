// SPDX-License-Identifier: Apache-2.0
// Whisper (Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022).
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// WhisperForConditionalGeneration. Its input_features are log-mel spectra [batch, num_mel_bins, 2 *
// max_source_positions].
ModulePtr build_whisper(const Json& config);

}  // namespace accel::nn
