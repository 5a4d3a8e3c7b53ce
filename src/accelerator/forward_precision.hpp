// Forward precision: in which types the forward of a prepared model computes.
#pragma once

#include <c10/core/DeviceType.h>

#include <memory>

#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/autocast.hpp"
#include "precision/fp8_recipe.hpp"

namespace accel::accelerator {

struct ForwardPrecision {
  Precision precision = Precision::kNo;
  c10::DeviceType device = c10::DeviceType::CPU;
  AutocastSettings autocast;
  std::shared_ptr<const precision::Fp8Recipe> fp8;  // of precision fp8
  bool keep_output_dtype = false;  // false: half-precision outputs become float32, because the loss is computed outside
};

}  // namespace accel::accelerator
