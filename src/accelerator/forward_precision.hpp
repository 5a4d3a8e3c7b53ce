// SPDX-License-Identifier: Apache-2.0
// Forward precision: in which types the forward of a prepared model computes.
#pragma once

#include <c10/core/DeviceType.h>

#include <memory>

#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/autocast.hpp"

namespace accel::nn {
class Fp8Layers;
}

namespace accel::accelerator {

struct ForwardPrecision {
  Precision precision = Precision::kNo;
  c10::DeviceType device = c10::DeviceType::CPU;
  AutocastSettings autocast;
  std::shared_ptr<nn::Fp8Layers> fp8;  // of precision fp8
  bool keep_output_dtype = false;  // false: half-precision outputs become float32, because the loss is computed outside
};

}  // namespace accel::accelerator
