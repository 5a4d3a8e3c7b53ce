// SPDX-License-Identifier: Apache-2.0
// Section 2: content of values, for languages without unions.
#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/object.hpp"
#include "capi/values/owned_value.hpp"

namespace accel::capi {
namespace {

using Contents = decltype(accel_value_t::as);

template <typename Content, typename Out>
accel_status_t read_content(const char* function, const accel_value_t* value, int32_t kind, Content Contents::*member,
                            Out* out) {
  return guarded(function, out, [&] {
    check_value(*check_pointer(value, "value"), "value");
    require(value->kind == kind, Status::kTypeMismatch, "value is a ", value_kind_name(value->kind), "; expected a ",
            value_kind_name(kind));
    return static_cast<Out>(value->as.*member);
  });
}

}  // namespace

ACCEL_FUNCTION int32_t accel_value_kind(const accel_value_t* value) {
  return guarded_value<int32_t>(__func__, -1, [&] { return check_pointer(value, "value")->kind; });
}

ACCEL_FUNCTION accel_status_t accel_value_as_bool(const accel_value_t* value, int32_t* out) {
  return read_content(__func__, value, ACCEL_VALUE_BOOL, &Contents::integer, out);
}

ACCEL_FUNCTION accel_status_t accel_value_as_int(const accel_value_t* value, int64_t* out) {
  return read_content(__func__, value, ACCEL_VALUE_INT, &Contents::integer, out);
}

ACCEL_FUNCTION accel_status_t accel_value_as_double(const accel_value_t* value, double* out) {
  return read_content(__func__, value, ACCEL_VALUE_DOUBLE, &Contents::number, out);
}

ACCEL_FUNCTION accel_status_t accel_value_as_string(const accel_value_t* value, const char** out) {
  return read_content(__func__, value, ACCEL_VALUE_STRING, &Contents::string, out);
}

ACCEL_FUNCTION accel_status_t accel_value_as_bytes(const accel_value_t* value, const accel_bytes_t** out) {
  return read_content(__func__, value, ACCEL_VALUE_BYTES, &Contents::bytes, out);
}

ACCEL_FUNCTION accel_status_t accel_value_as_tensor(const accel_value_t* value, accel_tensor_t** out) {
  return read_content(__func__, value, ACCEL_VALUE_TENSOR, &Contents::tensor, out);
}

ACCEL_FUNCTION accel_status_t accel_value_as_dtype(const accel_value_t* value, accel_dtype_t* out) {
  return read_content(__func__, value, ACCEL_VALUE_DTYPE, &Contents::dtype, out);
}

ACCEL_FUNCTION accel_status_t accel_value_as_device(const accel_value_t* value, accel_device_t* out) {
  return read_content(__func__, value, ACCEL_VALUE_DEVICE, &Contents::device, out);
}

}  // namespace accel::capi
