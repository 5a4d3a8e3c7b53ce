// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/reduction.hpp"

#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
#include <c10/util/complex.h>

#include <optional>

#include "kernels/instruction_set.hpp"

namespace accel::comm::ucx {
namespace {

std::optional<Element> plain_element(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Char:
      return Element::kInt8;
    case c10::ScalarType::Byte:
      return Element::kUInt8;
    case c10::ScalarType::Short:
      return Element::kInt16;
    case c10::ScalarType::UInt16:
      return Element::kUInt16;
    case c10::ScalarType::Int:
      return Element::kInt32;
    case c10::ScalarType::UInt32:
      return Element::kUInt32;
    case c10::ScalarType::Long:
      return Element::kInt64;
    case c10::ScalarType::UInt64:
      return Element::kUInt64;
    case c10::ScalarType::Half:
      return Element::kHalf;
    case c10::ScalarType::BFloat16:
      return Element::kBFloat16;
    case c10::ScalarType::Float:
      return Element::kFloat;
    case c10::ScalarType::Double:
      return Element::kDouble;
    default:
      return std::nullopt;
  }
}

// Booleans are bytes of 0 and 1: a sum is "any", a product is "all".
ReduceFunction find_boolean(ReduceOp reduction) {
  switch (reduction) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kOr:
      return ACCEL_FASTEST(find_kernel)(Element::kUInt8, ReduceOp::kOr);
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kAnd:
      return ACCEL_FASTEST(find_kernel)(Element::kUInt8, ReduceOp::kAnd);
    case ReduceOp::kXor:
      return ACCEL_FASTEST(find_kernel)(Element::kUInt8, ReduceOp::kXor);
    default:
      return nullptr;
  }
}

// Sums and means of complex numbers are those of their parts.
template <Element element, ReduceOp reduction>
void reduce_parts(void* output, const void* const* inputs, int ranks, int64_t count, double number) {
  static const ReduceFunction function = ACCEL_FASTEST(find_kernel)(element, reduction);
  function(output, inputs, ranks, 2 * count, number);
}

// The rare kinds, one element at a time: combined as `Value`, rounded once.
template <typename Stored, typename Value, typename Combine, ReduceOp reduction = ReduceOp::kNone>
void reduce_converted(void* output, const void* const* inputs, int ranks, int64_t count, double number) {
  for (int64_t i = 0; i < count; i++) {
    auto value = static_cast<Value>(static_cast<const Stored*>(inputs[0])[i]);
    for (int rank = 1; rank < ranks; rank++)
      value = Combine()(value, static_cast<Value>(static_cast<const Stored*>(inputs[rank])[i]));
    if constexpr (reduction == ReduceOp::kMean) value = value / static_cast<Value>(number);
    if constexpr (reduction == ReduceOp::kScaledSum) value = value * static_cast<Value>(number);
    static_cast<Stored*>(output)[i] = static_cast<Stored>(value);
  }
}

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Multiply {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Smaller {
  float operator()(float a, float b) const { return b < a || b != b ? b : a; }
};
struct Larger {
  float operator()(float a, float b) const { return a < b || b != b ? b : a; }
};

template <typename Stored>
ReduceFunction find_small_float(ReduceOp reduction) {
  switch (reduction) {
    case ReduceOp::kSum:
      return reduce_converted<Stored, float, Add>;
    case ReduceOp::kMean:
      return reduce_converted<Stored, float, Add, ReduceOp::kMean>;
    case ReduceOp::kScaledSum:
      return reduce_converted<Stored, float, Add, ReduceOp::kScaledSum>;
    case ReduceOp::kProduct:
      return reduce_converted<Stored, float, Multiply>;
    case ReduceOp::kMin:
      return reduce_converted<Stored, float, Smaller>;
    case ReduceOp::kMax:
      return reduce_converted<Stored, float, Larger>;
    default:
      return nullptr;
  }
}

template <typename Stored, typename Value, Element part>
ReduceFunction find_complex(ReduceOp reduction) {
  switch (reduction) {
    case ReduceOp::kSum:
      return reduce_parts<part, ReduceOp::kSum>;
    case ReduceOp::kMean:
      return reduce_parts<part, ReduceOp::kMean>;
    case ReduceOp::kScaledSum:
      return reduce_parts<part, ReduceOp::kScaledSum>;
    case ReduceOp::kProduct:
      return reduce_converted<Stored, Value, Multiply>;
    default:
      return nullptr;
  }
}

ReduceFunction find_function(c10::ScalarType dtype, ReduceOp reduction) {
  if (const auto element = plain_element(dtype)) return ACCEL_FASTEST(find_kernel)(*element, reduction);
  switch (dtype) {
    case c10::ScalarType::Bool:
      return find_boolean(reduction);
    case c10::ScalarType::ComplexHalf:
      return find_complex<c10::complex<c10::Half>, c10::complex<float>, Element::kHalf>(reduction);
    case c10::ScalarType::ComplexFloat:
      return find_complex<c10::complex<float>, c10::complex<float>, Element::kFloat>(reduction);
    case c10::ScalarType::ComplexDouble:
      return find_complex<c10::complex<double>, c10::complex<double>, Element::kDouble>(reduction);
    case c10::ScalarType::Float8_e5m2:
      return find_small_float<c10::Float8_e5m2>(reduction);
    case c10::ScalarType::Float8_e4m3fn:
      return find_small_float<c10::Float8_e4m3fn>(reduction);
    case c10::ScalarType::Float8_e5m2fnuz:
      return find_small_float<c10::Float8_e5m2fnuz>(reduction);
    case c10::ScalarType::Float8_e4m3fnuz:
      return find_small_float<c10::Float8_e4m3fnuz>(reduction);
    default:
      return nullptr;
  }
}

}  // namespace

Reducer find_reducer(c10::ScalarType dtype, ReduceOp reduction, int ranks, double factor) {
  if (reduction == ReduceOp::kScaledSum) return {find_function(dtype, reduction), factor};
  const bool exact = (ranks & (ranks - 1)) == 0;  // the reciprocal, by which to multiply is faster
  if (reduction == ReduceOp::kMean && exact && !c10::isIntegralType(dtype, /*includeBool=*/true))
    return {find_function(dtype, ReduceOp::kScaledSum), 1.0 / ranks};
  return {find_function(dtype, reduction), static_cast<double>(ranks)};
}

// [Note: a mean in stages] The number enters when tensors are read, so that sums of halves stay small enough, and what
// comes of that is added.
Reducer find_combiner(c10::ScalarType dtype, ReduceOp reduction) {
  const bool scales = reduction == ReduceOp::kMean || reduction == ReduceOp::kScaledSum;
  if (scales && c10::isIntegralType(dtype, /*includeBool=*/true)) return {};
  return {find_function(dtype, scales ? ReduceOp::kSum : reduction)};
}

const char* reduction_name(ReduceOp reduction) {
  static const char* const names[] = {"sum", "mean", "scaled sum", "product", "min",
                                      "max", "band", "bor",        "bxor",    "none"};
  return names[static_cast<int>(reduction)];
}

}  // namespace accel::comm::ucx
