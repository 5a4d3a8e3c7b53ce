// SPDX-License-Identifier: Apache-2.0
// The towers of CLIP, and the projections behind them.
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// Gives [hidden states, pooled], of which the latter is the state at the end of the text. Files have the modules of a
// tower that is the whole model below "text_model" or "vision_model".
ModulePtr clip_text_tower(const Json& config, bool is_whole);
// Gives [hidden states, pooled], of which the latter is the normalized state of the class token.
ModulePtr clip_vision_tower(const Json& config, bool is_whole);

// A projection of pooled states, without a bias.
ModulePtr clip_projection(const Json& tower_config, bool is_text, int64_t size);
// The scores of an image's classes.
ModulePtr clip_classifier(const Json& vision_config, int64_t classes);
constexpr int64_t kClipProjection = 512;  // its default size

}  // namespace accel::nn
