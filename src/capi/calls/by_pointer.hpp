// Shared by the generated variants of functions that pass structs by pointer.
#pragma once

#include <cstdint>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/object.hpp"
#include "capi/calls/thread_error.hpp"
#include "capi/values/owned_value.hpp"

namespace accel::capi {

// NULL becomes an invalid device, which the function itself refuses, so that it can clean up other arguments.
inline accel_device_t pointed(const accel_device_t* device) {
  return device != nullptr ? *device : accel_device_t{INT32_MIN, INT32_MIN};
}

inline void check_made(const accel_device_t&) {}
inline void check_made(const accel_value_t& made) { check_value(made, "value"); }

template <typename Made, typename Make>
accel_status_t made_at(const char* function, Made* out, Make&& make) {
  return guarded(function, [&] {
    check_pointer(out, "out");
    const uint64_t errors = thread_error().count;
    const Made made = make();
    if (thread_error().count != errors) return thread_error().status;
    check_made(made);
    *out = made;
    return ACCEL_OK;
  });
}

}  // namespace accel::capi
