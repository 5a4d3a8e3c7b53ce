// SPDX-License-Identifier: Apache-2.0
// Mixed precision policy: the dtypes in which a sharded model computes.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

namespace accel {
struct FsdpSettings;
}

namespace accel::parallel {

// Dtypes without a value are the parameters' own.
struct MixedPrecisionPolicy {
  std::optional<c10::ScalarType> param_dtype;   // of whole parameters
  std::optional<c10::ScalarType> reduce_dtype;  // in which gradients are summed; else that of whole parameters
  std::optional<c10::ScalarType> output_dtype;  // of the model's outputs
};

// Throws for a name that is not of a floating-point dtype.
MixedPrecisionPolicy mixed_precision_policy(const FsdpSettings& settings);

}  // namespace accel::parallel
