// SPDX-License-Identifier: Apache-2.0
// Section 2: devices.
#include "capi/models/device.hpp"

#include <optional>
#include <string>

#include "capi/calls/guard.hpp"
#include "capi/calls/object.hpp"
#include "capi/values/value.hpp"
#include "comm/late_failure.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

using tensor::DeviceKind;

static_assert(static_cast<int32_t>(DeviceKind::kCpu) == ACCEL_DEVICE_CPU);
static_assert(static_cast<int32_t>(DeviceKind::kMeta) == ACCEL_DEVICE_META);
static_assert(static_cast<int32_t>(DeviceKind::kMps) == ACCEL_DEVICE_MPS);
static_assert(static_cast<int32_t>(DeviceKind::kXla) == ACCEL_DEVICE_XLA);
static_assert(static_cast<int32_t>(DeviceKind::kOutOfTree) == ACCEL_DEVICE_OUT_OF_TREE);

c10::IValue optional_number(const std::optional<int64_t>& number) {
  return number ? c10::IValue(*number) : c10::IValue();
}

c10::IValue properties_of(c10::Device given) {
  tensor::require_device(given);
  const c10::Device device = given.has_index() ? given : tensor::current_device(given.type());
  const DeviceKind kind = tensor::device_kind(device);
  std::optional<int64_t> memory;
  try {
    memory = tensor::device_memory(device).total;
  } catch (const Error&) {  // it does not count
  }
  auto dtypes = tree::new_list();
  for (const tensor::Dtype& dtype : tensor::kDtypes)
    if (tensor::supports_dtype(device, dtype.type)) dtypes.push_back(std::string(dtype.name));
  return tree::new_map({{"name", device.str()},
                        {"type", tensor::device_kind_name(kind)},
                        {"index", int64_t{device.index()}},
                        {"count", tensor::device_count(kind)},
                        {"total_memory", optional_number(memory)},
                        {"dtypes", dtypes}});
}

c10::IValue memory_of(c10::Device device) {
  const tensor::DeviceMemory memory = tensor::device_memory(device);
  return tree::new_map({{"allocated", memory.allocated},
                        {"peak_allocated", memory.peak_allocated},
                        {"reserved", memory.reserved},
                        {"peak_reserved", memory.peak_reserved},
                        {"free", optional_number(memory.free)},
                        {"total", optional_number(memory.total)}});
}

}  // namespace

c10::Device to_device(const accel_device_t* device, const char* name) {
  check_pointer(device, name);
  return tensor::device_from_numbers({device->type, device->index});
}

accel_device_t from_device(c10::Device device) {
  const tensor::DeviceNumbers numbers = tensor::device_numbers(device);
  return {numbers.kind, numbers.index};
}

ACCEL_FUNCTION accel_status_t accel_device_parse(const char* text, accel_device_t* out) {
  return guarded(__func__, out, [&] { return from_device(tensor::parse_device(check_pointer(text, "text"))); });
}

ACCEL_FUNCTION const char* accel_device_type_name(int32_t type) {
  return guarded_value<const char*>(__func__, nullptr,
                                    [&] { return tensor::device_kind_name(static_cast<DeviceKind>(type)); });
}

ACCEL_FUNCTION int32_t accel_device_count(int32_t type) {
  return guarded_value(__func__, 0,
                       [&] { return static_cast<int32_t>(tensor::device_count(static_cast<DeviceKind>(type))); });
}

ACCEL_FUNCTION accel_status_t accel_device_default(accel_device_t* out) {
  return guarded(__func__, out, [&] {
    return from_device(tensor::default_accelerator().value_or(c10::Device(c10::DeviceType::CPU)));
  });
}

ACCEL_FUNCTION accel_status_t accel_device_current(int32_t type, accel_device_t* out) {
  return guarded(__func__, out, [&] {
    return from_device(tensor::current_device(tensor::device_from_numbers({type, -1}).type()));
  });
}

ACCEL_FUNCTION accel_status_t accel_device_set_current(const accel_device_t* device) {
  return guarded(__func__, [&] { tensor::set_current_device(to_device(device)); });
}

ACCEL_FUNCTION accel_status_t accel_device_synchronize(const accel_device_t* device) {
  return guarded(__func__, [&] {
    const c10::Device meant = to_device(device);
    tensor::synchronize(meant);
    comm::rethrow_late_failure(meant.type());
  });
}

ACCEL_FUNCTION accel_status_t accel_device_empty_cache(const accel_device_t* device) {
  return guarded(__func__, [&] {
    const c10::Device meant = to_device(device);
    tensor::require_device(meant);
    if (meant.is_cpu()) return kernels::empty_cache();
    tensor::empty_cache(meant.type());
  });
}

ACCEL_FUNCTION accel_status_t accel_device_memory(const accel_device_t* device, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(memory_of(to_device(device))); });
}

ACCEL_FUNCTION accel_status_t accel_device_reset_peak_memory(const accel_device_t* device) {
  return guarded(__func__, [&] { tensor::reset_peak_memory(to_device(device)); });
}

ACCEL_FUNCTION accel_status_t accel_device_properties(const accel_device_t* device, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(properties_of(to_device(device))); });
}

}  // namespace accel::capi
