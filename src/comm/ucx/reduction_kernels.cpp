// Compiled several times with different instruction sets (see meson.build). It includes nothing that holds inline
// functions: the linker would merge those between the copies and could pick one that the processor at hand does not
// have.
#include "comm/ucx/reduction_kernels.hpp"

#ifdef __clang__
#define ACCEL_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ACCEL_VECTORISE _Pragma("GCC ivdep")
#endif

namespace accel::comm::ucx {
namespace ACCEL_KERNEL_NAMESPACE {
namespace {

template <typename To, typename From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "a change of type, not of size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

// How an element is stored (Stored), and the type in which it is combined (Value).
template <typename T, typename V = T>
struct Plain {
  using Stored = T;
  using Value = V;
  static Value load(Stored stored) { return static_cast<Value>(stored); }
  static Stored store(Value value) { return static_cast<Stored>(value); }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) { return bits_as<float>(static_cast<uint32_t>(stored) << 16); }
  static Stored store(Value value) {
    const auto bits = bits_as<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
    return static_cast<Stored>(value != value ? 0x7fc0 : rounded);
  }
};

// IEEE half precision with floating-point arithmetic alone, which every instruction set vectorises.
struct Half {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) {
    const uint32_t magnitude = stored & 0x7fffu;
    // Normal numbers: move the exponent up by 224 and scale it back by 2^-112, which also keeps infinity and NaN.
    const float normal = bits_as<float>((magnitude << 13) + (224u << 23)) * 0x1p-112f;
    // Subnormal ones: put the mantissa below 0.5 and subtract the 0.5.
    const float subnormal = bits_as<float>(magnitude | (126u << 23)) - 0.5f;
    const auto value = bits_as<uint32_t>(magnitude < 0x400 ? subnormal : normal);
    return bits_as<float>(value | (static_cast<uint32_t>(stored & 0x8000u) << 16));
  }
  static Stored store(Value value) {
    const auto bits = bits_as<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    // What is too large becomes infinity here; the addition below rounds at the last bit of the half.
    const float scaled = (bits_as<float>(magnitude) * 0x1p112f) * 0x1p-110f;
    const uint32_t exponent = magnitude & 0x7f800000u;
    const uint32_t bias = exponent < 0x38800000u ? 0x38800000u : exponent;
    const auto rounded = bits_as<uint32_t>(bits_as<float>(bias + 0x07800000u) + scaled);
    const uint32_t half = ((rounded >> 13) & 0x7c00u) + (rounded & 0xfffu);
    return static_cast<Stored>((bits >> 16 & 0x8000u) | (magnitude > 0x7f800000u ? 0x7e00u : half));
  }
};

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
struct Min {  // NaN wins, as in LibTorch
  template <typename V>
  static V combine(V a, V b) {
    return b < a || b != b ? b : a;
  }
};
struct Max {
  template <typename V>
  static V combine(V a, V b) {
    return a < b || b != b ? b : a;
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

template <typename Type, typename Operator, bool kMean = false>
void reduce(void* output, const void* const* inputs, int ranks, int64_t count) {
  using Stored = typename Type::Stored;
  using Value = typename Type::Value;
  const auto divisor = static_cast<Value>(ranks);
  const auto finish = [divisor](Value value) {
    return Type::store(kMean ? static_cast<Value>(value / divisor) : value);
  };
  auto* const out = static_cast<Stored*>(output);
  const auto* const first = static_cast<const Stored*>(inputs[0]);
  if (ranks == 2) {
    const auto* const second = static_cast<const Stored*>(inputs[1]);
    ACCEL_VECTORISE
    for (int64_t i = 0; i < count; i++) out[i] = finish(Operator::combine(Type::load(first[i]), Type::load(second[i])));
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
    for (int64_t i = 0; i < block; i++) out[start + i] = finish(values[i]);
  }
}

// `Type` for operations that may wrap (unsigned, for the wrap is defined there), `Ordered` to compare, `Wide` for the
// mean.
template <typename Type, typename Ordered, typename Wide>
ReduceFunction arithmetic(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return reduce<Type, Sum>;
    case Reduction::kMean:
      return reduce<Wide, Sum, true>;
    case Reduction::kProduct:
      return reduce<Type, Product>;
    case Reduction::kMin:
      return reduce<Ordered, Min>;
    case Reduction::kMax:
      return reduce<Ordered, Max>;
    default:
      return nullptr;
  }
}

template <typename Type>
ReduceFunction floating(Reduction reduction) {
  return arithmetic<Type, Type, Type>(reduction);
}

template <typename Unsigned, typename Ordered, typename Wide>
ReduceFunction integer(Reduction reduction) {
  using Bits = Plain<Unsigned>;
  switch (reduction) {
    case Reduction::kAnd:
      return reduce<Bits, And>;
    case Reduction::kOr:
      return reduce<Bits, Or>;
    case Reduction::kXor:
      return reduce<Bits, Xor>;
    default:
      // Small unsigned factors would be promoted to int and could overflow it: combine them as 32 bits.
      if constexpr (sizeof(Unsigned) < 4)
        return arithmetic<Plain<Unsigned, uint32_t>, Plain<Ordered>, Plain<Ordered, Wide>>(reduction);
      else
        return arithmetic<Bits, Plain<Ordered>, Plain<Ordered, Wide>>(reduction);
  }
}

}  // namespace

ReduceFunction find_kernel(Element element, Reduction reduction) {
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
      return floating<Half>(reduction);
    case Element::kBFloat16:
      return floating<BFloat16>(reduction);
    case Element::kFloat:
      return floating<Plain<float>>(reduction);
    case Element::kDouble:
      return floating<Plain<double>>(reduction);
  }
  return nullptr;
}

}  // namespace ACCEL_KERNEL_NAMESPACE
}  // namespace accel::comm::ucx
