// SPDX-License-Identifier: Apache-2.0
// Table of dtypes: the numbers of the C API, LibTorch's types, names, and the names in safetensors files.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace accel::tensor {

struct Dtype {
  int32_t number;  // pinned; that of accel.h
  c10::ScalarType type;
  size_t size;                         // bytes of one element
  const char* name;                    // "float32"
  const char* safetensors;             // "F32"; null for what the format lacks
  std::array<const char*, 3> aliases;  // "fp32", "float"; unused ones are null
};

// In the order of the numbers, from 1.
inline constexpr std::array<Dtype, 21> kDtypes = {{
    {1, c10::ScalarType::Byte, 1, "uint8", "U8", {"u8", "byte", nullptr}},
    {2, c10::ScalarType::Char, 1, "int8", "I8", {"i8", "char", nullptr}},
    {3, c10::ScalarType::Short, 2, "int16", "I16", {"i16", "short", nullptr}},
    {4, c10::ScalarType::Int, 4, "int32", "I32", {"i32", "int", nullptr}},
    {5, c10::ScalarType::Long, 8, "int64", "I64", {"i64", "long", nullptr}},
    {6, c10::ScalarType::Half, 2, "float16", "F16", {"fp16", "half", "f16"}},
    {7, c10::ScalarType::Float, 4, "float32", "F32", {"fp32", "float", "f32"}},
    {8, c10::ScalarType::Double, 8, "float64", "F64", {"fp64", "double", "f64"}},
    {9, c10::ScalarType::ComplexHalf, 4, "complex32", nullptr, {"chalf", nullptr, nullptr}},
    {10, c10::ScalarType::ComplexFloat, 8, "complex64", "C64", {"cfloat", nullptr, nullptr}},
    {11, c10::ScalarType::ComplexDouble, 16, "complex128", nullptr, {"cdouble", nullptr, nullptr}},
    {12, c10::ScalarType::Bool, 1, "bool", "BOOL", {"boolean", nullptr, nullptr}},
    {13, c10::ScalarType::BFloat16, 2, "bfloat16", "BF16", {"bf16", nullptr, nullptr}},
    {14, c10::ScalarType::Float8_e5m2, 1, "float8_e5m2", "F8_E5M2", {"fp8_e5m2", nullptr, nullptr}},
    {15, c10::ScalarType::Float8_e4m3fn, 1, "float8_e4m3fn", "F8_E4M3", {"fp8_e4m3", "fp8_e4m3fn", nullptr}},
    {16, c10::ScalarType::Float8_e5m2fnuz, 1, "float8_e5m2fnuz", nullptr, {"fp8_e5m2fnuz", nullptr, nullptr}},
    {17, c10::ScalarType::Float8_e4m3fnuz, 1, "float8_e4m3fnuz", nullptr, {"fp8_e4m3fnuz", nullptr, nullptr}},
    {18, c10::ScalarType::Float8_e8m0fnu, 1, "float8_e8m0fnu", "F8_E8M0", {"fp8_e8m0", "fp8_e8m0fnu", nullptr}},
    {19, c10::ScalarType::UInt16, 2, "uint16", "U16", {"u16", nullptr, nullptr}},
    {20, c10::ScalarType::UInt32, 4, "uint32", "U32", {"u32", nullptr, nullptr}},
    {21, c10::ScalarType::UInt64, 8, "uint64", "U64", {"u64", nullptr, nullptr}},
}};

// Null if there is none.
const Dtype* find_dtype(int32_t number);
const Dtype* find_dtype(c10::ScalarType type);
const Dtype* find_dtype(std::string_view name);  // long and short names
const Dtype* find_safetensors_dtype(std::string_view name);

// Fails where the functions above find nothing: kInvalidArgument for a number, kUnsupported for a type of LibTorch,
// kNotFound for a name.
c10::ScalarType dtype_from_number(int32_t number);
int32_t dtype_number(c10::ScalarType type);
c10::ScalarType dtype_from_name(std::string_view name);
// Bytes per element for estimates of sizes, also for "fp8", "int4" and "int2"; "bool" counts as one bit.
// @accelerate dtype_byte_size
double dtype_byte_size(std::string_view name);
const char* dtype_name(c10::ScalarType type);  // LibTorch's name for types that the table lacks

}  // namespace accel::tensor
