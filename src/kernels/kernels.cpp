// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/kernels.hpp"

#include "kernels/byte_block.hpp"
#include "kernels/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {

// One element as the V of the formulas.
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

#include "kernels/update_formulas.hpp"

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

void encode_by_chance(const float* values, int64_t begin, int64_t count, const uint32_t* noise, void* data) {
  auto* const stored = static_cast<uint16_t*>(data) + begin;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) stored[i] = BFloat16::store_by_chance(values[i], noise[i]);
}

// The numbers of a block: where they are, or decoded into `room`.
float* open(const Stream& stream, int64_t block, int64_t count, float* room) {
  const int64_t begin = block * kBlock;
  switch (stream.format) {
    case Format::kBFloat16:
      decode<BFloat16>(stream.data, begin, count, room);
      return room;
    case Format::kHalf:
      decode<Half>(stream.data, begin, count, room);
      return room;
    case Format::kSignedByte:
      ByteBlock<true>::load(static_cast<const uint8_t*>(stream.data) + begin, stream.scales[block], count, room);
      return room;
    case Format::kUnsignedByte:
      ByteBlock<false>::load(static_cast<const uint8_t*>(stream.data) + begin, stream.scales[block], count, room);
      return room;
    default:
      return static_cast<float*>(stream.data) + begin;
  }
}
double* open(const Stream& stream, int64_t block, int64_t, double*) {
  return static_cast<double*>(stream.data) + block * kBlock;
}

// Puts the numbers of a block back to where they are kept. `noise` is for streams that round by chance.
void close(const Stream& stream, int64_t block, int64_t count, const float* values, const uint32_t* noise) {
  const int64_t begin = block * kBlock;
  const uint32_t* const chance = stream.by_chance ? noise : nullptr;
  switch (stream.format) {
    case Format::kBFloat16:
      if (chance != nullptr) return encode_by_chance(values, begin, count, chance, stream.data);
      return encode<BFloat16>(values, begin, count, stream.data);
    case Format::kHalf:
      return encode<Half>(values, begin, count, stream.data);
    case Format::kSignedByte:
      stream.scales[block] = ByteBlock<true>::store(values, count, chance, static_cast<uint8_t*>(stream.data) + begin);
      return;
    case Format::kUnsignedByte:
      stream.scales[block] = ByteBlock<false>::store(values, count, chance, static_cast<uint8_t*>(stream.data) + begin);
      return;
    default:
      if (values != static_cast<float*>(stream.data) + begin) encode<Plain<float>>(values, begin, count, stream.data);
  }
}
void close(const Stream&, int64_t, int64_t, const double*, const uint32_t*) {}

// Sums go into lanes that a vector register holds, in the same order on every processor.
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

// Whether a formula has a loop of its own for a signed and an unsigned state of bytes.
template <typename F>
constexpr bool kHasByteLoop = false;
template <>
constexpr bool kHasByteLoop<Adam> = true;

// One pass decodes, updates and finds the largest magnitudes while the divider is busy, a second one encodes. `noise`
// is written always, and used by states that round by chance.
template <typename F>
void update_bytes(const UpdateJob& job, const float* numbers, int64_t block, int64_t count, float* p, const float* g,
                  float* s0, float* s1, uint32_t* noise) {
  using First = ByteBlock<true>;
  using Second = ByteBlock<false>;
  auto* const codes0 = static_cast<uint8_t*>(job.states[0].data) + block * kBlock;
  auto* const codes1 = static_cast<uint8_t*>(job.states[1].data) + block * kBlock;
  const float scale0 = job.states[0].scales[block], scale1 = job.states[1].scales[block];
  const uint32_t seed = job.seed + static_cast<uint32_t>(block * kBlock);
  uint32_t largest0 = 0, largest1 = 0;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) {
    float values[kMostStates] = {First::decode(codes0[i], scale0), Second::decode(codes1[i], scale1)};
    float parameter = p[i];
    F::apply(numbers, parameter, g[i], values);
    p[i] = parameter;
    s0[i] = values[0];
    s1[i] = values[1];
    largest0 = larger_magnitude(largest0, values[0]);
    largest1 = larger_magnitude(largest1, values[1]);
    noise[i] = noise_of(seed + static_cast<uint32_t>(i));
  }
  job.states[0].scales[block] = First::scale_for(largest0);
  job.states[1].scales[block] = Second::scale_for(largest1);
  First::store(s0, First::scale_for(largest0), count, job.states[0].by_chance ? noise : nullptr, codes0);
  Second::store(s1, Second::scale_for(largest1), count, job.states[1].by_chance ? noise : nullptr, codes1);
}

template <typename T, typename F>
void update(const UpdateJob& job, int64_t first, int64_t last) {
  T numbers[kNumNumbers];
  for (int i = 0; i < kNumNumbers; i++) numbers[i] = static_cast<T>(job.numbers[i]);
  constexpr bool kOpens = sizeof(T) == sizeof(float);
  constexpr int kReads = kReadStates<F>, kChanges = kChangedStates<F>;
  alignas(64) T room[2 + kMostStates][kBlock];
  alignas(64) uint32_t noise[kOpens ? kBlock : 1];
  bool by_chance = job.parameter.by_chance;
  for (const Stream& state : job.states) by_chance = by_chance || state.by_chance;
  const bool in_bytes = job.states[0].format == Format::kSignedByte && job.states[1].format == Format::kUnsignedByte;
  for (int64_t block = first; block < last; block++) {
    const int64_t rest = job.count - block * kBlock;
    const int64_t count = rest < kBlock ? rest : kBlock;
    T* const p = open(job.parameter, block, count, room[0]);
    const T* const g = open(job.gradient, block, count, room[1]);
    if constexpr (kOpens && kHasByteLoop<F>) {
      if (in_bytes) {
        update_bytes<F>(job, numbers, block, count, p, g, room[2], room[3], noise);
        close(job.parameter, block, count, p, noise);
        if (job.rounded.data != nullptr) close(job.rounded, block, count, p, nullptr);
        continue;
      }
    }
    T* s[kMostStates] = {};
    const auto is_kept = [&](int k) { return k < kReads || job.states[k].data != nullptr; };
    for (int k = 0; k < F::kStates; k++)
      s[k] = is_kept(k) ? open(job.states[k], block, count, room[2 + k]) : room[2 + k];
    T* const s0 = s[0];
    T* const s1 = s[1];
    T* const s2 = s[2];
    ACCEL_VECTORISE
    for (int64_t i = 0; i < count; i++) {
      T values[kMostStates] = {};
      if constexpr (kReads > 0) values[0] = s0[i];
      if constexpr (kReads > 1) values[1] = s1[i];
      if constexpr (kReads > 2) values[2] = s2[i];
      T parameter = p[i];
      F::apply(numbers, parameter, g[i], values);
      p[i] = parameter;
      if constexpr (kChanges > 0) s0[i] = values[0];
      if constexpr (kChanges > 1) s1[i] = values[1];
      if constexpr (kChanges > 2) s2[i] = values[2];
    }
    if (kOpens && by_chance) make_noise(job.seed + static_cast<uint32_t>(block * kBlock), count, noise);
    close(job.parameter, block, count, p, noise);
    for (int k = 0; k < kChanges; k++)
      if (is_kept(k)) close(job.states[k], block, count, s[k], noise);
    if constexpr (F::kStates == kMostStates) {
      if (job.squares != nullptr) {
        job.squares[2 * block] = norm_of_block<Norm::kSquares>(p, count);
        job.squares[2 * block + 1] = norm_of_block<Norm::kSquares>(s2, count);
      }
    }
    if constexpr (kOpens) {
      if (job.rounded.data != nullptr) close(job.rounded, block, count, p, nullptr);
    }
  }
}

template <typename T>
UpdateKernel update_of(Formula formula) {
  switch (formula) {
    case Formula::kSgd:
      return update<T, Sgd>;
    case Formula::kSgdMomentum:
      return update<T, SgdMomentum>;
    case Formula::kAdam:
      return update<T, Adam>;
    case Formula::kAdamAmsgrad:
      return update<T, AdamAmsgrad>;
    case Formula::kNadam:
      return update<T, Nadam>;
    case Formula::kRadam:
      return update<T, Radam>;
    case Formula::kAdamax:
      return update<T, Adamax>;
    case Formula::kAdagrad:
      return update<T, Adagrad>;
    case Formula::kRmsProp:
      return update<T, RmsProp<false, false>>;
    case Formula::kRmsPropMomentum:
      return update<T, RmsProp<false, true>>;
    case Formula::kRmsPropCentered:
      return update<T, RmsProp<true, false>>;
    case Formula::kRmsPropCenteredMomentum:
      return update<T, RmsProp<true, true>>;
    case Formula::kLion:
      return update<T, Lion>;
    case Formula::kLambDirection:
      return update<T, LambDirection>;
    case Formula::kLambStep:
      return update<T, LambStep>;
    case Formula::kScheduleFreeSgd:
      return update<T, ScheduleFreeSgd>;
    case Formula::kScheduleFreeAdam:
      return update<T, ScheduleFreeAdam>;
  }
  return nullptr;
}

UpdateKernel find_update(Formula formula, Format parameter) {
  return parameter == Format::kDouble ? update_of<double>(formula) : update_of<float>(formula);
}

template <typename T, Norm kNorm>
void norm(const Stream& stream, int64_t count, int64_t first, int64_t last, double* results) {
  alignas(64) T room[sizeof(T) == sizeof(float) ? kBlock : 1];
  for (int64_t block = first; block < last; block++) {
    const int64_t rest = count - block * kBlock;
    const int64_t here = rest < kBlock ? rest : kBlock;
    results[block - first] = norm_of_block<kNorm>(open(stream, block, here, room), here);
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
void scale(const Stream& stream, int64_t count, int64_t first, int64_t last, double factor, double limit) {
  alignas(64) T room[sizeof(T) == sizeof(float) ? kBlock : 1];
  const T own_factor = static_cast<T>(factor);
  const T own_limit = static_cast<T>(limit);
  for (int64_t block = first; block < last; block++) {
    const int64_t rest = count - block * kBlock;
    const int64_t here = rest < kBlock ? rest : kBlock;
    T* const values = open(stream, block, here, room);
    ACCEL_VECTORISE
    for (int64_t i = 0; i < here; i++) {
      const T value = values[i] * own_factor;
      const T below = value > own_limit ? own_limit : value;  // NaN stays
      values[i] = below < -own_limit ? -own_limit : below;
    }
    close(stream, block, here, values, nullptr);
  }
}

ScaleKernel find_scale(Format format) { return format == Format::kDouble ? scale<double> : scale<float>; }

void copy(const Stream& from, const Stream& to, int64_t count, int64_t first, int64_t last, uint32_t seed) {
  alignas(64) float room[kBlock];
  alignas(64) uint32_t noise[kBlock];
  for (int64_t block = first; block < last; block++) {
    const int64_t rest = count - block * kBlock;
    const int64_t here = rest < kBlock ? rest : kBlock;
    const bool is_widened =
        to.format == Format::kFloat && (from.format == Format::kBFloat16 || from.format == Format::kHalf);
    if (is_widened) {  // decoded where it goes
      open(from, block, here, static_cast<float*>(to.data) + block * kBlock);
      continue;
    }
    if (to.by_chance) make_noise(seed + static_cast<uint32_t>(block * kBlock), here, noise);
    close(to, block, here, open(from, block, here, room), noise);
  }
}

}  // namespace

Kernels kernels() { return {find_update, find_norm, find_scale, copy}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
