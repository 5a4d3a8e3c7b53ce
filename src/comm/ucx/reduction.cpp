#include "comm/ucx/reduction.hpp"

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
ReduceFunction find_boolean(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMax:
    case Reduction::kOr:
      return ACCEL_FASTEST(find_kernel)(Element::kUInt8, Reduction::kOr);
    case Reduction::kProduct:
    case Reduction::kMin:
    case Reduction::kAnd:
      return ACCEL_FASTEST(find_kernel)(Element::kUInt8, Reduction::kAnd);
    case Reduction::kXor:
      return ACCEL_FASTEST(find_kernel)(Element::kUInt8, Reduction::kXor);
    default:
      return nullptr;
  }
}

// Sums and means of complex numbers are those of their parts.
template <Element element, Reduction reduction>
void reduce_parts(void* output, const void* const* inputs, int ranks, int64_t count, double number) {
  static const ReduceFunction function = ACCEL_FASTEST(find_kernel)(element, reduction);
  function(output, inputs, ranks, 2 * count, number);
}

// The rare kinds, one element at a time: combined as `Value`, rounded once.
template <typename Stored, typename Value, typename Combine, Reduction reduction = Reduction::kNone>
void reduce_converted(void* output, const void* const* inputs, int ranks, int64_t count, double number) {
  for (int64_t i = 0; i < count; i++) {
    auto value = static_cast<Value>(static_cast<const Stored*>(inputs[0])[i]);
    for (int rank = 1; rank < ranks; rank++)
      value = Combine()(value, static_cast<Value>(static_cast<const Stored*>(inputs[rank])[i]));
    if constexpr (reduction == Reduction::kMean) value = value / static_cast<Value>(number);
    if constexpr (reduction == Reduction::kScaledSum) value = value * static_cast<Value>(number);
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
ReduceFunction find_small_float(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return reduce_converted<Stored, float, Add>;
    case Reduction::kMean:
      return reduce_converted<Stored, float, Add, Reduction::kMean>;
    case Reduction::kScaledSum:
      return reduce_converted<Stored, float, Add, Reduction::kScaledSum>;
    case Reduction::kProduct:
      return reduce_converted<Stored, float, Multiply>;
    case Reduction::kMin:
      return reduce_converted<Stored, float, Smaller>;
    case Reduction::kMax:
      return reduce_converted<Stored, float, Larger>;
    default:
      return nullptr;
  }
}

template <typename Stored, typename Value, Element part>
ReduceFunction find_complex(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return reduce_parts<part, Reduction::kSum>;
    case Reduction::kMean:
      return reduce_parts<part, Reduction::kMean>;
    case Reduction::kScaledSum:
      return reduce_parts<part, Reduction::kScaledSum>;
    case Reduction::kProduct:
      return reduce_converted<Stored, Value, Multiply>;
    default:
      return nullptr;
  }
}

ReduceFunction find_function(c10::ScalarType dtype, Reduction reduction) {
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

Reducer find_reducer(c10::ScalarType dtype, Reduction reduction, int ranks, double factor) {
  if (reduction == Reduction::kScaledSum) return {find_function(dtype, reduction), factor};
  const bool exact = (ranks & (ranks - 1)) == 0;  // the reciprocal, by which to multiply is faster
  if (reduction == Reduction::kMean && exact && !c10::isIntegralType(dtype, /*includeBool=*/true))
    return {find_function(dtype, Reduction::kScaledSum), 1.0 / ranks};
  return {find_function(dtype, reduction), static_cast<double>(ranks)};
}

// [Note: a mean in stages] The number enters when tensors are read, so that sums of halves stay small enough, and what
// comes of that is added.
Reducer find_combiner(c10::ScalarType dtype, Reduction reduction) {
  const bool scales = reduction == Reduction::kMean || reduction == Reduction::kScaledSum;
  if (scales && c10::isIntegralType(dtype, /*includeBool=*/true)) return {};
  return {find_function(dtype, scales ? Reduction::kSum : reduction)};
}

const char* reduction_name(Reduction reduction) {
  static const char* const names[] = {"sum", "mean", "scaled sum", "product", "min",
                                      "max", "band", "bor",        "bxor",    "none"};
  return names[static_cast<int>(reduction)];
}

}  // namespace accel::comm::ucx
