// SPDX-License-Identifier: Apache-2.0
// T5 (Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", 2020).
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// `architectures` says which: T5ForConditionalGeneration, which is the default, or T5EncoderModel.
ModulePtr build_t5(const Json& config);

}  // namespace accel::nn
