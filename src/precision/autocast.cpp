// SPDX-License-Identifier: Apache-2.0
#include "config/generated/settings/prepare/autocast.hpp"
#include "config/generated/choices/precision.hpp"
#include "precision/autocast.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <iterator>

namespace accel::precision {

bool has_autocast(c10::DeviceType device) {
  if (!at::autocast::is_autocast_available(device)) return false;
  const c10::DispatchKey key = at::autocast::get_autocast_dispatch_key_from_device_type(device);
  constexpr const char* kOperators[] = {"aten::mm", "aten::addmm", "aten::matmul", "aten::linear", "aten::bmm"};
  return std::any_of(std::begin(kOperators), std::end(kOperators), [key](const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").hasKernelForDispatchKey(key);
  });
}

std::optional<c10::ScalarType> autocast_dtype(c10::DeviceType device) {
  if (!at::autocast::is_autocast_available(device) || !at::autocast::is_autocast_enabled(device)) return std::nullopt;
  const c10::DispatchKey key = at::autocast::get_autocast_dispatch_key_from_device_type(device);
  if (c10::impl::tls_is_dispatch_key_excluded(key)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

AutocastState AutocastState::current(c10::DeviceType device) {
  return {device, at::autocast::is_autocast_enabled(device), at::autocast::is_autocast_cache_enabled(),
          at::autocast::get_autocast_dtype(device), AutocastWeightCache::current()};
}

AutocastStateScope::AutocastStateScope(const AutocastState& state)
    : former_(AutocastState::current(state.device)), weights_(state.weights) {
  at::autocast::set_autocast_enabled(state.device, state.enabled);
  at::autocast::set_autocast_cache_enabled(state.cache_enabled);
  at::autocast::set_autocast_dtype(state.device, state.dtype);
  at::autocast::increment_nesting();
}

AutocastStateScope::~AutocastStateScope() {
  // LibTorch's own cache of casts is only valid until the weights change.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(former_.device, former_.enabled);
  at::autocast::set_autocast_cache_enabled(former_.cache_enabled);
  at::autocast::set_autocast_dtype(former_.device, former_.dtype);
}

AutocastGuard::AutocastGuard(Precision precision, c10::DeviceType device)
    : AutocastGuard(precision, device, AutocastSettings()) {}

AutocastGuard::AutocastGuard(Precision precision, c10::DeviceType device, const AutocastSettings& settings) {
  if (precision == Precision::kNo) return;
  const bool keeps_weights = settings.enabled && settings.cache_enabled;
  scope_.emplace(AutocastState{device, settings.enabled, settings.cache_enabled,
                               precision == Precision::kFp16 ? c10::ScalarType::Half : c10::ScalarType::BFloat16,
                               keeps_weights ? AutocastWeightCache::current() : nullptr});
}

}  // namespace accel::precision
