// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/update/kernels.hpp"

#include "kernels/update/block_quantization.hpp"
#include "kernels/update/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {

// The functions of update_kernels.hpp on one element.
inline float square_root(float value) { return __builtin_sqrtf(value); }
inline double square_root(double value) { return __builtin_sqrt(value); }
template <typename T>
inline T magnitude(T value) {
  return value < 0 ? -value : value;
}
template <typename T>
inline T larger(T a, T b) {        // NaN wins, as in LibTorch
  return a < b || b != b ? b : a;  // NOLINT(misc-redundant-expression): NaN wins
}
template <typename T>
inline T sign(T value) {
  return static_cast<T>(value > 0 ? 1 : value < 0 ? -1 : 0);
}
template <typename T>
inline T plus_product(T a, T b, T c) {
  return a + b * c;
}

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE

#include "kernels/update/update_kernels.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

template <typename Number>
void decode(const void* data, int64_t begin, int64_t count, float* values) {
  const auto* const stored = static_cast<const typename Number::Stored*>(data) + begin;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) values[i] = Number::load(stored[i]);
}

template <typename Number>
void encode(const float* values, int64_t begin, int64_t count, void* data) {
  auto* const stored = static_cast<typename Number::Stored*>(data) + begin;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) stored[i] = Number::store(values[i]);
}

void encode_stochastically(const float* values, int64_t begin, int64_t count, const uint32_t* noise, void* data) {
  auto* const stored = static_cast<uint16_t*>(data) + begin;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) stored[i] = BFloat16::store_stochastically(values[i], noise[i]);
}

// The numbers of a block: in place, or decoded into `buffer`.
float* load_block(const ElementSpan& span, int64_t block, int64_t count, float* buffer) {
  const int64_t begin = block * kBlock;
  switch (span.format) {
    case Format::kBFloat16:
      decode<BFloat16>(span.data, begin, count, buffer);
      return buffer;
    case Format::kHalf:
      decode<Half>(span.data, begin, count, buffer);
      return buffer;
    case Format::kSigned8Bit:
      BlockQuantization<true>::load(static_cast<const uint8_t*>(span.data) + begin, span.scales[block], count, buffer);
      return buffer;
    case Format::kUnsigned8Bit:
      BlockQuantization<false>::load(static_cast<const uint8_t*>(span.data) + begin, span.scales[block], count, buffer);
      return buffer;
    default:
      return static_cast<float*>(span.data) + begin;
  }
}
double* load_block(const ElementSpan& span, int64_t block, int64_t, double*) {
  return static_cast<double*>(span.data) + block * kBlock;
}

// Stores the numbers of a block in the span's format. `noise` is for stochastic rounding.
void store_block(const ElementSpan& span, int64_t block, int64_t count, const float* values, const uint32_t* noise) {
  const int64_t begin = block * kBlock;
  const uint32_t* const bits = span.stochastic_rounding ? noise : nullptr;
  switch (span.format) {
    case Format::kBFloat16:
      if (bits != nullptr) return encode_stochastically(values, begin, count, bits, span.data);
      return encode<BFloat16>(values, begin, count, span.data);
    case Format::kHalf:
      return encode<Half>(values, begin, count, span.data);
    case Format::kSigned8Bit:
      span.scales[block] =
          BlockQuantization<true>::store(values, count, bits, static_cast<uint8_t*>(span.data) + begin);
      return;
    case Format::kUnsigned8Bit:
      span.scales[block] =
          BlockQuantization<false>::store(values, count, bits, static_cast<uint8_t*>(span.data) + begin);
      return;
    default:
      if (values != static_cast<float*>(span.data) + begin) encode<Plain<float>>(values, begin, count, span.data);
  }
}
void store_block(const ElementSpan&, int64_t, int64_t, const double*, const uint32_t*) {}

// Sums stay in SIMD lanes, and added in the same order on every processor.
constexpr int kFoldLanes = 16;

template <Norm kNorm, typename T>
double norm_of_block(const T* values, int64_t count) {
  const auto term = [](T value) {
    const auto size = static_cast<double>(magnitude(value));
    return kNorm == Norm::kSquares ? size * size : size;
  };
  const auto join = [](double a, double b) { return kNorm == Norm::kLargest ? larger(a, b) : a + b; };
  double lanes[kFoldLanes] = {};
  const int64_t whole = count / kFoldLanes * kFoldLanes;
  for (int64_t i = 0; i < whole; i += kFoldLanes)
    for (int lane = 0; lane < kFoldLanes; lane++) lanes[lane] = join(lanes[lane], term(values[i + lane]));
  for (int64_t i = whole; i < count; i++) lanes[i - whole] = join(lanes[i - whole], term(values[i]));
  double result = lanes[0];
  for (int lane = 1; lane < kFoldLanes; lane++) result = join(result, lanes[lane]);
  return result;
}

// Whether an update kernel has a fused loop for one signed and one unsigned 8-bit state.
template <typename F>
constexpr bool kHas8BitLoop = false;
template <>
constexpr bool kHas8BitLoop<Adam> = true;

// One pass decodes, updates and finds the largest magnitudes while the divider is busy; a second one encodes. `noise`
// is always written, and used by states with stochastic rounding.
template <typename F>
void update_8bit(const UpdateArguments& arguments, const float* scalars, int64_t block, int64_t count, float* p,
                 const float* g, float* s0, float* s1, uint32_t* noise) {
  using First = BlockQuantization<true>;
  using Second = BlockQuantization<false>;
  auto* const codes0 = static_cast<uint8_t*>(arguments.states[0].data) + block * kBlock;
  auto* const codes1 = static_cast<uint8_t*>(arguments.states[1].data) + block * kBlock;
  const float scale0 = arguments.states[0].scales[block], scale1 = arguments.states[1].scales[block];
  const uint32_t seed = arguments.seed + static_cast<uint32_t>(block * kBlock);
  uint32_t largest0 = 0, largest1 = 0;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) {
    float values[kMaxStates] = {First::decode(codes0[i], scale0), Second::decode(codes1[i], scale1)};
    float parameter = p[i];
    F::apply(scalars, parameter, g[i], values);
    p[i] = parameter;
    s0[i] = values[0];
    s1[i] = values[1];
    largest0 = larger_magnitude(largest0, values[0]);
    largest1 = larger_magnitude(largest1, values[1]);
    noise[i] = noise_of(seed + static_cast<uint32_t>(i));
  }
  arguments.states[0].scales[block] = First::scale_for(largest0);
  arguments.states[1].scales[block] = Second::scale_for(largest1);
  First::store(s0, First::scale_for(largest0), count, arguments.states[0].stochastic_rounding ? noise : nullptr,
               codes0);
  Second::store(s1, Second::scale_for(largest1), count, arguments.states[1].stochastic_rounding ? noise : nullptr,
                codes1);
}

template <typename T, typename F>
void update(const UpdateArguments& arguments, int64_t first, int64_t last) {
  T scalars[kNumScalars];
  for (int i = 0; i < kNumScalars; i++) scalars[i] = static_cast<T>(arguments.scalars[i]);
  constexpr bool kDecodes = sizeof(T) == sizeof(float);
  constexpr int kReads = kReadStates<F>, kChanges = kChangedStates<F>;
  alignas(64) T buffer[2 + kMaxStates][kBlock];
  alignas(64) uint32_t noise[kDecodes ? kBlock : 1];
  bool stochastic_rounding = arguments.parameter.stochastic_rounding;
  for (const ElementSpan& state : arguments.states)
    stochastic_rounding = stochastic_rounding || state.stochastic_rounding;
  const bool is_8bit =
      arguments.states[0].format == Format::kSigned8Bit && arguments.states[1].format == Format::kUnsigned8Bit;
  for (int64_t block = first; block < last; block++) {
    const int64_t rest = arguments.count - block * kBlock;
    const int64_t count = rest < kBlock ? rest : kBlock;
    T* const p = load_block(arguments.parameter, block, count, buffer[0]);
    const T* const g = load_block(arguments.gradient, block, count, buffer[1]);
    if constexpr (kDecodes && kHas8BitLoop<F>) {
      if (is_8bit) {
        update_8bit<F>(arguments, scalars, block, count, p, g, buffer[2], buffer[3], noise);
        store_block(arguments.parameter, block, count, p, noise);
        if (arguments.rounded.data != nullptr) store_block(arguments.rounded, block, count, p, nullptr);
        continue;
      }
    }
    T* s[kMaxStates] = {};
    const auto is_kept = [&](int k) { return k < kReads || arguments.states[k].data != nullptr; };
    for (int k = 0; k < F::kStates; k++)
      s[k] = is_kept(k) ? load_block(arguments.states[k], block, count, buffer[2 + k]) : buffer[2 + k];
    T* const s0 = s[0];
    T* const s1 = s[1];
    T* const s2 = s[2];
    ACCEL_VECTORISE
    for (int64_t i = 0; i < count; i++) {
      T values[kMaxStates] = {};
      if constexpr (kReads > 0) values[0] = s0[i];
      if constexpr (kReads > 1) values[1] = s1[i];
      if constexpr (kReads > 2) values[2] = s2[i];
      T parameter = p[i];
      F::apply(scalars, parameter, g[i], values);
      p[i] = parameter;
      if constexpr (kChanges > 0) s0[i] = values[0];
      if constexpr (kChanges > 1) s1[i] = values[1];
      if constexpr (kChanges > 2) s2[i] = values[2];
    }
    if (kDecodes && stochastic_rounding)
      make_noise(arguments.seed + static_cast<uint32_t>(block * kBlock), count, noise);
    store_block(arguments.parameter, block, count, p, noise);
    for (int k = 0; k < kChanges; k++)
      if (is_kept(k)) store_block(arguments.states[k], block, count, s[k], noise);
    if constexpr (F::kStates == kMaxStates) {
      if (arguments.squares != nullptr) {
        arguments.squares[2 * block] = norm_of_block<Norm::kSquares>(p, count);
        arguments.squares[2 * block + 1] = norm_of_block<Norm::kSquares>(s2, count);
      }
    }
    if constexpr (kDecodes) {
      if (arguments.rounded.data != nullptr) store_block(arguments.rounded, block, count, p, nullptr);
    }
  }
}

template <typename T>
UpdateFunction update_of(UpdateKernel kernel) {
  switch (kernel) {
    case UpdateKernel::kSgd:
      return update<T, Sgd>;
    case UpdateKernel::kSgdMomentum:
      return update<T, SgdMomentum>;
    case UpdateKernel::kAdam:
      return update<T, Adam>;
    case UpdateKernel::kAdamAmsgrad:
      return update<T, AdamAmsgrad>;
    case UpdateKernel::kNadam:
      return update<T, Nadam>;
    case UpdateKernel::kRadam:
      return update<T, Radam>;
    case UpdateKernel::kAdamax:
      return update<T, Adamax>;
    case UpdateKernel::kAdagrad:
      return update<T, Adagrad>;
    case UpdateKernel::kRmsProp:
      return update<T, RmsProp<false, false>>;
    case UpdateKernel::kRmsPropMomentum:
      return update<T, RmsProp<false, true>>;
    case UpdateKernel::kRmsPropCentered:
      return update<T, RmsProp<true, false>>;
    case UpdateKernel::kRmsPropCenteredMomentum:
      return update<T, RmsProp<true, true>>;
    case UpdateKernel::kLion:
      return update<T, Lion>;
    case UpdateKernel::kLambDirection:
      return update<T, LambDirection>;
    case UpdateKernel::kLambStep:
      return update<T, LambStep>;
    case UpdateKernel::kScheduleFreeSgd:
      return update<T, ScheduleFreeSgd>;
    case UpdateKernel::kScheduleFreeAdam:
      return update<T, ScheduleFreeAdam>;
  }
  return nullptr;
}

UpdateFunction find_update(UpdateKernel kernel, Format parameter) {
  return parameter == Format::kDouble ? update_of<double>(kernel) : update_of<float>(kernel);
}

template <typename T, Norm kNorm>
void norm(const ElementSpan& span, int64_t count, int64_t first, int64_t last, double* results) {
  alignas(64) T buffer[sizeof(T) == sizeof(float) ? kBlock : 1];
  for (int64_t block = first; block < last; block++) {
    const int64_t rest = count - block * kBlock;
    const int64_t here = rest < kBlock ? rest : kBlock;
    results[block - first] = norm_of_block<kNorm>(load_block(span, block, here, buffer), here);
  }
}

template <typename T>
NormKernel norm_of(Norm kind) {
  switch (kind) {
    case Norm::kSum:
      return norm<T, Norm::kSum>;
    case Norm::kSquares:
      return norm<T, Norm::kSquares>;
    case Norm::kLargest:
      return norm<T, Norm::kLargest>;
  }
  return nullptr;
}

NormKernel find_norm(Norm kind, Format format) {
  return format == Format::kDouble ? norm_of<double>(kind) : norm_of<float>(kind);
}

template <typename T>
void scale(const ElementSpan& span, int64_t count, int64_t first, int64_t last, double factor, double limit) {
  alignas(64) T buffer[sizeof(T) == sizeof(float) ? kBlock : 1];
  const T own_factor = static_cast<T>(factor);
  const T own_limit = static_cast<T>(limit);
  for (int64_t block = first; block < last; block++) {
    const int64_t rest = count - block * kBlock;
    const int64_t here = rest < kBlock ? rest : kBlock;
    T* const values = load_block(span, block, here, buffer);
    ACCEL_VECTORISE
    for (int64_t i = 0; i < here; i++) {
      const T value = values[i] * own_factor;
      const T below = value > own_limit ? own_limit : value;  // NaN stays
      values[i] = below < -own_limit ? -own_limit : below;
    }
    store_block(span, block, here, values, nullptr);
  }
}

ScaleKernel find_scale(Format format) { return format == Format::kDouble ? scale<double> : scale<float>; }

void copy(const ElementSpan& from, const ElementSpan& to, int64_t count, int64_t first, int64_t last, uint32_t seed) {
  alignas(64) float buffer[kBlock];
  alignas(64) uint32_t noise[kBlock];
  for (int64_t block = first; block < last; block++) {
    const int64_t rest = count - block * kBlock;
    const int64_t here = rest < kBlock ? rest : kBlock;
    const bool is_widened =
        to.format == Format::kFloat && (from.format == Format::kBFloat16 || from.format == Format::kHalf);
    if (is_widened) {  // decoded straight into the result
      load_block(from, block, here, static_cast<float*>(to.data) + block * kBlock);
      continue;
    }
    if (to.stochastic_rounding) make_noise(seed + static_cast<uint32_t>(block * kBlock), here, noise);
    store_block(to, block, here, load_block(from, block, here, buffer), noise);
  }
}

}  // namespace

Kernels kernels() { return {find_update, find_norm, find_scale, copy}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
