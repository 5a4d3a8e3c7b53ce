// SPDX-License-Identifier: Apache-2.0
// Autocast guard: operators in its scope run in the precision of LibTorch's autocast lists.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "precision/autocast_weight_cache.hpp"

namespace accel {
enum class Precision : int32_t;
struct AutocastSettings;
}  // namespace accel

namespace accel::precision {

// Whether any operator runs in half precision under autocast on devices of this type.
bool has_autocast(c10::DeviceType device);

// The dtype in which autocast computes matmuls on this thread; nothing where it is off, or inside of an operator that
// it has cast for.
std::optional<c10::ScalarType> autocast_dtype(c10::DeviceType device);

// The state of autocast on a thread, for one type of devices.
struct AutocastState {
  c10::DeviceType device;
  bool enabled;
  bool cache_enabled;  // LibTorch's own cache of casts, of all types of devices
  c10::ScalarType dtype;
  AutocastWeightCache* weights;  // null: none

  static AutocastState current(c10::DeviceType device);
};

// Bound to its thread, which has this state until the end; scopes nest and end in reverse order.
class AutocastStateScope {
 public:
  explicit AutocastStateScope(const AutocastState& state);
  ~AutocastStateScope();
  AutocastStateScope(const AutocastStateScope&) = delete;
  AutocastStateScope& operator=(const AutocastStateScope&) = delete;

 private:
  AutocastState former_;
  AutocastWeightCache::Scope weights_;
};

// Sets autocast for a precision. Nothing changes for kNo; fp8 is bf16 to autocast.
class AutocastGuard {
 public:
  AutocastGuard(Precision precision, c10::DeviceType device);  // with the default settings
  AutocastGuard(Precision precision, c10::DeviceType device, const AutocastSettings& settings);

 private:
  std::optional<AutocastStateScope> scope_;
};

}  // namespace accel::precision
