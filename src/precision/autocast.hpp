// Autocast guard: operators in its scope run in the precision of LibTorch's autocast lists.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "config/generated/settings.hpp"
#include "precision/autocast_weight_cache.hpp"

namespace accel::precision {

// Whether any operator runs in half precision under autocast on devices of this type.
bool has_autocast(c10::DeviceType device);

// Bound to its thread; guards nest and end in reverse order. Only bf16 and fp16 change anything.
class AutocastGuard {
 public:
  AutocastGuard(Precision precision, c10::DeviceType device, const AutocastSettings& settings = {});
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  bool active_;
  c10::DeviceType device_;
  bool former_enabled_ = false;
  bool former_cache_ = false;
  c10::ScalarType former_dtype_ = c10::ScalarType::Undefined;
  std::optional<AutocastWeightCache::Scope> without_autocast_weight_cache_;
};

}  // namespace accel::precision
