// SPDX-License-Identifier: Apache-2.0
// Section 2: dtypes.
#include "tensor/dtype.hpp"

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/object.hpp"

namespace accel::capi {
namespace {

#define ACCEL_SAME_DTYPE(member, pinned) static_assert(tensor::kDtypes[(pinned)-1].type == c10::ScalarType::member)
ACCEL_SAME_DTYPE(Byte, ACCEL_DTYPE_UINT8);
ACCEL_SAME_DTYPE(Char, ACCEL_DTYPE_INT8);
ACCEL_SAME_DTYPE(Short, ACCEL_DTYPE_INT16);
ACCEL_SAME_DTYPE(Int, ACCEL_DTYPE_INT32);
ACCEL_SAME_DTYPE(Long, ACCEL_DTYPE_INT64);
ACCEL_SAME_DTYPE(Half, ACCEL_DTYPE_FLOAT16);
ACCEL_SAME_DTYPE(Float, ACCEL_DTYPE_FLOAT32);
ACCEL_SAME_DTYPE(Double, ACCEL_DTYPE_FLOAT64);
ACCEL_SAME_DTYPE(ComplexHalf, ACCEL_DTYPE_COMPLEX32);
ACCEL_SAME_DTYPE(ComplexFloat, ACCEL_DTYPE_COMPLEX64);
ACCEL_SAME_DTYPE(ComplexDouble, ACCEL_DTYPE_COMPLEX128);
ACCEL_SAME_DTYPE(Bool, ACCEL_DTYPE_BOOL);
ACCEL_SAME_DTYPE(BFloat16, ACCEL_DTYPE_BFLOAT16);
ACCEL_SAME_DTYPE(Float8_e5m2, ACCEL_DTYPE_FLOAT8_E5M2);
ACCEL_SAME_DTYPE(Float8_e4m3fn, ACCEL_DTYPE_FLOAT8_E4M3FN);
ACCEL_SAME_DTYPE(Float8_e5m2fnuz, ACCEL_DTYPE_FLOAT8_E5M2FNUZ);
ACCEL_SAME_DTYPE(Float8_e4m3fnuz, ACCEL_DTYPE_FLOAT8_E4M3FNUZ);
ACCEL_SAME_DTYPE(Float8_e8m0fnu, ACCEL_DTYPE_FLOAT8_E8M0FNU);
ACCEL_SAME_DTYPE(UInt16, ACCEL_DTYPE_UINT16);
ACCEL_SAME_DTYPE(UInt32, ACCEL_DTYPE_UINT32);
ACCEL_SAME_DTYPE(UInt64, ACCEL_DTYPE_UINT64);
#undef ACCEL_SAME_DTYPE

}  // namespace

ACCEL_FUNCTION const char* accel_dtype_name(accel_dtype_t dtype) {
  const tensor::Dtype* const known = tensor::find_dtype(dtype);
  return known != nullptr ? known->name : nullptr;
}

ACCEL_FUNCTION size_t accel_dtype_size(accel_dtype_t dtype) {
  const tensor::Dtype* const known = tensor::find_dtype(dtype);
  return known != nullptr ? known->size : 0;
}

ACCEL_FUNCTION accel_status_t accel_dtype_byte_size(const char* name, double* out) {
  return guarded(__func__, out, [&] { return tensor::dtype_byte_size(check_pointer(name, "name")); });
}

ACCEL_FUNCTION accel_status_t accel_dtype_from_name(const char* name, accel_dtype_t* out) {
  return guarded(__func__, out,
                 [&] { return tensor::dtype_number(tensor::dtype_from_name(check_pointer(name, "name"))); });
}

}  // namespace accel::capi
