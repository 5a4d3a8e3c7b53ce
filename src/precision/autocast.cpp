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

AutocastGuard::AutocastGuard(Precision precision, c10::DeviceType device, const AutocastSettings& settings)
    : active_(precision == Precision::kBf16 || precision == Precision::kFp16), device_(device) {
  if (!active_) return;
  former_enabled_ = at::autocast::is_autocast_enabled(device_);
  former_cache_ = at::autocast::is_autocast_cache_enabled();
  former_dtype_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, settings.enabled);
  at::autocast::set_autocast_cache_enabled(settings.cache_enabled);
  at::autocast::set_autocast_dtype(device_,
                                   precision == Precision::kBf16 ? c10::ScalarType::BFloat16 : c10::ScalarType::Half);
  at::autocast::increment_nesting();
  if (!settings.enabled || !settings.cache_enabled) without_autocast_weight_cache_.emplace(nullptr);
}

AutocastGuard::~AutocastGuard() {
  if (!active_) return;
  // LibTorch's own cache of casts is only valid until the weights change.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, former_enabled_);
  at::autocast::set_autocast_cache_enabled(former_cache_);
  at::autocast::set_autocast_dtype(device_, former_dtype_);
}

}  // namespace accel::precision
