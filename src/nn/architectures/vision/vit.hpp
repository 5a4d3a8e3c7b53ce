// SPDX-License-Identifier: Apache-2.0
// Vision Transformer (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021).
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// `architectures` says which: ViTModel, which is the default, or ViTForImageClassification.
ModulePtr build_vit(const Json& config);

}  // namespace accel::nn
