// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and kernels/update/stored_number.hpp).
#include "comm/ucx/algorithms/reduction_kernels.hpp"

#ifdef __F16C__
#include <immintrin.h>  // its functions are always inlined
#endif

#include "kernels/update/stored_number.hpp"

namespace accel::comm::ucx {
namespace ACCEL_KERNEL_NAMESPACE {
namespace {

using kernels::ACCEL_KERNEL_NAMESPACE::bits_as;
using kernels::ACCEL_KERNEL_NAMESPACE::Half;
using kernels::ACCEL_KERNEL_NAMESPACE::Plain;

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));

// Works on a number, or on each element of a vector.
template <typename Value>
inline auto is_nan(Value value) {
  return value != value;  // NOLINT(misc-redundant-expression)
}

// Elements that are loaded as `kVectors` vectors at once. bfloat16: two share a word, so that no instruction has to
// move elements to widen and to narrow them.
struct BFloat16Pairs {
  using Stored = uint16_t;
  static constexpr int kVectors = 2;
  static void load(const Stored* from, Floats* to) {
    Words words;
    __builtin_memcpy(&words, from, sizeof(words));
    to[0] = reinterpret_cast<Floats>(words << 16);
    to[1] = reinterpret_cast<Floats>(words & 0xffff0000u);
  }
  static void store(const Floats* from, Stored* to) {
    const Words words = (rounded(from[0]) >> 16) | (rounded(from[1]) & 0xffff0000u);
    __builtin_memcpy(to, &words, sizeof(words));
  }
  static Words rounded(Floats values) {  // to nearest, ties to even
    const auto bits = reinterpret_cast<Words>(values);
    return is_nan(values) ? Words{} + 0x7fc00000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  }
};

#ifdef __F16C__
// Half precision by the processor's conversions; a NaN is the one that Half makes.
struct HalfVector {
  using Stored = uint16_t;
  static constexpr int kVectors = 1;
#ifdef __AVX512F__
  static constexpr __mmask16 kAll = 0xffff;  // the forms without a mask make GCC 12 warn
  static void load(const Stored* from, Floats* to) {
    *to = _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void store(const Floats* from, Stored* to) {
    constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_maskz_cvtps_ph(kAll, without_payload(*from), kToNearest));
  }
#else
  static void load(const Stored* from, Floats* to) {
    *to = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void store(const Floats* from, Stored* to) {
    constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(without_payload(*from), kToNearest));
  }
#endif
  static Floats without_payload(Floats values) {
    const auto sign = reinterpret_cast<Words>(values) & 0x80000000u;
    return is_nan(values) ? reinterpret_cast<Floats>(sign | 0x7fc00000u) : values;
  }
};
#endif

struct Sum {
  template <typename V>
  static V combine(V a, V b) {
    return static_cast<V>(a + b);
  }
};
struct Product {
  template <typename V>
  static V combine(V a, V b) {
    return static_cast<V>(a * b);
  }
};
struct Min {  // NaN wins, as in LibTorch. No ||, which vectors do not have.
  template <typename V>
  static V combine(V a, V b) {
    return ((b < a) | is_nan(b)) ? b : a;
  }
};
struct Max {
  template <typename V>
  static V combine(V a, V b) {
    return ((a < b) | is_nan(b)) ? b : a;
  }
};
struct And {
  template <typename V>
  static V combine(V a, V b) {
    return static_cast<V>(a & b);
  }
};
struct Or {
  template <typename V>
  static V combine(V a, V b) {
    return static_cast<V>(a | b);
  }
};
struct Xor {
  template <typename V>
  static V combine(V a, V b) {
    return static_cast<V>(a ^ b);
  }
};

enum class Finish { kNone, kDivide, kMultiply };

template <typename Type, typename Operator, Finish finish>
void reduce_elements(void* output, const void* const* inputs, int ranks, int64_t count, double number) {
  using Stored = typename Type::Stored;
  using Value = typename Type::Value;
  [[maybe_unused]] const auto operand = finish == Finish::kNone ? Value{} : static_cast<Value>(number);
  const auto finished = [&](Value value) {
    if constexpr (finish == Finish::kDivide) value = static_cast<Value>(value / operand);
    if constexpr (finish == Finish::kMultiply) value = static_cast<Value>(value * operand);
    return Type::store(value);
  };
  auto* const out = static_cast<Stored*>(output);
  const auto* const first = static_cast<const Stored*>(inputs[0]);
  if (ranks == 2) {
    const auto* const second = static_cast<const Stored*>(inputs[1]);
    ACCEL_VECTORISE
    for (int64_t i = 0; i < count; i++)
      out[i] = finished(Operator::combine(Type::load(first[i]), Type::load(second[i])));
    return;
  }
  constexpr int64_t kBlock = 1024;  // stays in the first-level cache while the ranks are added
  Value values[kBlock];
  for (int64_t start = 0; start < count; start += kBlock) {
    const int64_t block = count - start < kBlock ? count - start : kBlock;
    for (int64_t i = 0; i < block; i++) values[i] = Type::load(first[start + i]);
    for (int rank = 1; rank < ranks; rank++) {
      const auto* const input = static_cast<const Stored*>(inputs[rank]) + start;
      for (int64_t i = 0; i < block; i++) values[i] = Operator::combine(values[i], Type::load(input[i]));
    }
    for (int64_t i = 0; i < block; i++) out[start + i] = finished(values[i]);
  }
}

// Reduces the types whose elements are loaded as vectors.
template <typename Type, typename Operator, Finish finish>
void reduce_vectors(void* output, const void* const* inputs, int ranks, int64_t count, double number) {
  using Stored = typename Type::Stored;
  static constexpr int64_t kElements = Type::kVectors * kVectorBytes / static_cast<int64_t>(sizeof(float));
  const Floats operand = Floats{} + static_cast<float>(number);
  const auto load = [](const void* from, int64_t at, int64_t elements, Floats* to) {
    const auto* const source = static_cast<const Stored*>(from) + at;
    if (elements == kElements) return Type::load(source, to);
    Stored padded[kElements] = {};
    for (int64_t i = 0; i < elements; i++) padded[i] = source[i];
    Type::load(padded, to);
  };
  const auto step = [&](int64_t at, int64_t elements, int buffers) {
    Floats values[Type::kVectors], others[Type::kVectors];
    load(inputs[0], at, elements, values);
    for (int rank = 1; rank < buffers; rank++) {
      load(inputs[rank], at, elements, others);
      for (int v = 0; v < Type::kVectors; v++) values[v] = Operator::combine(values[v], others[v]);
    }
    for (Floats& value : values) {
      if (finish == Finish::kDivide) value = value / operand;
      if (finish == Finish::kMultiply) value = value * operand;
    }
    auto* const goal = static_cast<Stored*>(output) + at;
    if (elements == kElements) return Type::store(values, goal);
    Stored padded[kElements];
    Type::store(values, padded);
    for (int64_t i = 0; i < elements; i++) goal[i] = padded[i];
  };
  const int64_t whole = count / kElements * kElements;
  if (ranks == 2)  // a constant for the compiler
    for (int64_t at = 0; at < whole; at += kElements) step(at, kElements, 2);
  else
    for (int64_t at = 0; at < whole; at += kElements) step(at, kElements, ranks);
  if (whole < count) step(whole, count - whole, ranks);
}

// The loop for the type: over vectors where it has them.
template <typename Type, typename Operator, Finish finish, int = Type::kVectors>
constexpr ReduceFunction loop_for(int) {
  return reduce_vectors<Type, Operator, finish>;
}
template <typename Type, typename Operator, Finish finish>
constexpr ReduceFunction loop_for(...) {
  return reduce_elements<Type, Operator, finish>;
}
template <typename Type, typename Operator, Finish finish = Finish::kNone>
constexpr ReduceFunction kReduce = loop_for<Type, Operator, finish>(0);

// `Type` for operations that may wrap (unsigned, for the wrap is defined there), `Ordered` to compare, `Wide` for the
// mean.
template <typename Type, typename Ordered, typename Wide>
ReduceFunction arithmetic(ReduceOp reduction) {
  switch (reduction) {
    case ReduceOp::kSum:
      return kReduce<Type, Sum>;
    case ReduceOp::kMean:
      return kReduce<Wide, Sum, Finish::kDivide>;
    case ReduceOp::kProduct:
      return kReduce<Type, Product>;
    case ReduceOp::kMin:
      return kReduce<Ordered, Min>;
    case ReduceOp::kMax:
      return kReduce<Ordered, Max>;
    default:
      return nullptr;
  }
}

template <typename Type>
ReduceFunction floating(ReduceOp reduction) {
  if (reduction == ReduceOp::kScaledSum) return kReduce<Type, Sum, Finish::kMultiply>;
  return arithmetic<Type, Type, Type>(reduction);
}

template <typename Unsigned, typename Ordered, typename Wide>
ReduceFunction integer(ReduceOp reduction) {
  using Bits = Plain<Unsigned>;
  switch (reduction) {
    case ReduceOp::kAnd:
      return kReduce<Bits, And>;
    case ReduceOp::kOr:
      return kReduce<Bits, Or>;
    case ReduceOp::kXor:
      return kReduce<Bits, Xor>;
    default:
      // Small unsigned factors would be promoted to int and could overflow it: combine them as 32 bits.
      if constexpr (sizeof(Unsigned) < 4)
        return arithmetic<Plain<Unsigned, uint32_t>, Plain<Ordered>, Plain<Ordered, Wide>>(reduction);
      else
        return arithmetic<Bits, Plain<Ordered>, Plain<Ordered, Wide>>(reduction);
  }
}

}  // namespace

ReduceFunction find_kernel(Element element, ReduceOp reduction) {
  switch (element) {
    case Element::kInt8:
      return integer<uint8_t, int8_t, int64_t>(reduction);
    case Element::kUInt8:
      return integer<uint8_t, uint8_t, uint64_t>(reduction);
    case Element::kInt16:
      return integer<uint16_t, int16_t, int64_t>(reduction);
    case Element::kUInt16:
      return integer<uint16_t, uint16_t, uint64_t>(reduction);
    case Element::kInt32:
      return integer<uint32_t, int32_t, int64_t>(reduction);
    case Element::kUInt32:
      return integer<uint32_t, uint32_t, uint64_t>(reduction);
    case Element::kInt64:
      return integer<uint64_t, int64_t, int64_t>(reduction);
    case Element::kUInt64:
      return integer<uint64_t, uint64_t, uint64_t>(reduction);
    case Element::kHalf:
#ifdef __F16C__
      return floating<HalfVector>(reduction);
#else
      return floating<Half>(reduction);
#endif
    case Element::kBFloat16:
      return floating<BFloat16Pairs>(reduction);
    case Element::kFloat:
      return floating<Plain<float>>(reduction);
    case Element::kDouble:
      return floating<Plain<double>>(reduction);
  }
  return nullptr;
}

}  // namespace ACCEL_KERNEL_NAMESPACE
}  // namespace accel::comm::ucx
