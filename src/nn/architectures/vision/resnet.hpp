// SPDX-License-Identifier: Apache-2.0
// ResNet (He et al., "Deep Residual Learning for Image Recognition", 2016), as transformers builds it.
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// `architectures` says which: ResNetModel, which is the default, or ResNetForImageClassification.
ModulePtr build_resnet(const Json& config);

}  // namespace accel::nn
