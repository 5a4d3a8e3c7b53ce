// Autocast as a guard: operators inside choose the precision that LibTorch's lists give them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "config/precision_name.hpp"

namespace accel::precision {

// @accelerate AutocastKwargs
struct AutocastSettings {
  bool enabled = true;        // false: operators inside keep the dtypes of their inputs
  bool cache_enabled = true;  // weights are cast once for a region
};

// Bound to its thread; guards nest and end in reverse order. Only bf16 and fp16 change anything.
class AutocastGuard {
 public:
  // `uses_kept_casts`: the caller knows that the weights are those of the casts that an earlier guard has kept.
  AutocastGuard(Precision precision, c10::DeviceType device, const AutocastSettings& settings = {},
                bool uses_kept_casts = false);
  ~AutocastGuard();
  // The casts of weights outlive this guard, for the next one that asks for them with `uses_kept_casts`.
  void keep_casts() { keeps_casts_ = true; }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  bool active_;
  bool keeps_casts_ = false;
  c10::DeviceType device_;
  bool former_enabled_ = false;
  bool former_cache_ = false;
  c10::ScalarType former_dtype_ = c10::ScalarType::Undefined;
};

}  // namespace accel::precision
