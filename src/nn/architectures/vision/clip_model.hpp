// SPDX-License-Identifier: Apache-2.0
// CLIP: a tower for images and one for text, whose vectors are compared (Radford et al., "Learning Transferable Visual
// Models From Natural Language Supervision", 2021).
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// CLIPModel, CLIPForImageClassification, or a class of one tower, which `architectures` may also name in the
// configuration of both.
ModulePtr build_clip(const Json& config);
// CLIPTextModel, which is the default, or CLIPTextModelWithProjection.
ModulePtr build_clip_text(const Json& config);
// CLIPVisionModel, which is the default, or CLIPVisionModelWithProjection.
ModulePtr build_clip_vision(const Json& config);

}  // namespace accel::nn
