// Section 2: devices.
#include "capi/device.hpp"

#include "capi/guard.hpp"
#include "capi/object.hpp"
#include "tensor/device.hpp"

namespace accel::capi {

using tensor::DeviceKind;

static_assert(static_cast<int32_t>(DeviceKind::kCpu) == ACCEL_DEVICE_CPU);
static_assert(static_cast<int32_t>(DeviceKind::kCuda) == ACCEL_DEVICE_CUDA);
static_assert(static_cast<int32_t>(DeviceKind::kMeta) == ACCEL_DEVICE_META);
static_assert(static_cast<int32_t>(DeviceKind::kMeta) + 1 == ACCEL_DEVICE_MPS);
static_assert(static_cast<int32_t>(DeviceKind::kLastKnown) == ACCEL_DEVICE_XLA);

c10::Device to_device(accel_device_t device) { return tensor::device_from_numbers({device.type, device.index}); }

accel_device_t from_device(c10::Device device) {
  const tensor::DeviceNumbers numbers = tensor::device_numbers(device);
  return {numbers.kind, numbers.index};
}

ACCEL_FUNCTION accel_status_t accel_device_parse(const char* text, accel_device_t* out) {
  return guarded(__func__, out, [&] { return from_device(tensor::parse_device(check_pointer(text, "text"))); });
}

ACCEL_FUNCTION int32_t accel_device_count(int32_t type) {
  return guarded_value(
      __func__, 0, [&] { return static_cast<int32_t>(tensor::device_count(static_cast<tensor::DeviceKind>(type))); });
}

}  // namespace accel::capi
