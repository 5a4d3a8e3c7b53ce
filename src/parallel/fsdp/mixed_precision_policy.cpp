// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/mixed_precision_policy.hpp"

#include <string>

#include "base/error.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "tensor/dtype.hpp"

namespace accel::parallel {
namespace {

std::optional<c10::ScalarType> floating_dtype(const std::string& name, const char* field) {
  if (name.empty()) return std::nullopt;
  const c10::ScalarType dtype = tensor::dtype_from_name(name);
  require(c10::isFloatingType(dtype), Status::kInvalidArgument, field, " is '", name,
          "'; expected float32, bfloat16 or float16");
  return dtype;
}

}  // namespace

MixedPrecisionPolicy mixed_precision_policy(const FsdpSettings& settings) {
  return {floating_dtype(settings.param_dtype, "param_dtype"), floating_dtype(settings.reduce_dtype, "reduce_dtype"),
          floating_dtype(settings.output_dtype, "output_dtype")};
}

}  // namespace accel::parallel
