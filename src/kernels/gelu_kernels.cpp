// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/gelu_kernels.hpp"

#include "kernels/attention/exponential.hpp"
#include "kernels/format_dispatch.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

struct ValueAndSlope {
  float value;  // of the cumulative distribution function that multiplies x
  float slope;
};

// The normal distribution's. Its upper tail is exp(-x^2 / 2) times a polynomial in 1 / (1 + p |x|), to 1e-7 (Abramowitz
// and Stegun, Handbook of Mathematical Functions, 7.1.26).
inline ValueAndSlope normal_distribution(float x) {
  constexpr float kInverseRootOf2 = 0.70710678f, kDensityAt0 = 0.39894228f;
  const float z = (x < 0 ? -x : x) * kInverseRootOf2;
  const float density = exponential_of(-z * z);
  const float t = 1 / (1 + 0.3275911f * z);
  const float series =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float tail = 0.5f * series * density;
  return {x < 0 ? tail : 1 - tail, kDensityAt0 * density};
}

// (1 + tanh(u)) / 2 is the logistic function of 2u.
inline ValueAndSlope tanh_distribution(float x) {
  constexpr float kRootOf2OverPi = 0.79788456f, kCubic = 0.044715f;
  const float square = x * x;
  const float twice = 2 * kRootOf2OverPi * x * (1 + kCubic * square);
  const float small = exponential_of(twice < 0 ? twice : -twice);
  const float larger = 1 / (1 + small);
  const float smaller = small * larger;  // 1 - larger, with all its digits
  return {twice < 0 ? smaller : larger, smaller * larger * 2 * kRootOf2OverPi * (1 + 3 * kCubic * square)};
}

template <GeluApproximation kApproximation>
inline ValueAndSlope distribution(float x) {
  return kApproximation == GeluApproximation::kNone ? normal_distribution(x) : tanh_distribution(x);
}

template <typename Number, GeluApproximation kApproximation>
void forward_as(const ElementSpan& input, const ElementSpan& output, int64_t first, int64_t last) {
  const auto* const from = static_cast<const typename Number::Stored*>(input.data);
  auto* const to = static_cast<typename Number::Stored*>(output.data);
  ACCEL_VECTORISE
  for (int64_t i = first; i < last; i++) {
    const float x = Number::load(from[i]);
    to[i] = Number::store(x * distribution<kApproximation>(x).value);
  }
}

template <typename Number, GeluApproximation kApproximation>
void backward_as(const ElementSpan& input, const ElementSpan& output_gradient, const ElementSpan& input_gradient,
                 int64_t first, int64_t last) {
  const auto* const from = static_cast<const typename Number::Stored*>(input.data);
  const auto* const gradient = static_cast<const typename Number::Stored*>(output_gradient.data);
  auto* const to = static_cast<typename Number::Stored*>(input_gradient.data);
  ACCEL_VECTORISE
  for (int64_t i = first; i < last; i++) {
    const float x = Number::load(from[i]);
    const ValueAndSlope at = distribution<kApproximation>(x);
    to[i] = Number::store(Number::load(gradient[i]) * (at.value + x * at.slope));
  }
}

void forward(GeluApproximation approximation, const ElementSpan& input, const ElementSpan& output, int64_t first,
             int64_t last) {
  with_number(input.format, [&](auto number) {
    using Number = decltype(number);
    if (approximation == GeluApproximation::kTanh)
      return forward_as<Number, GeluApproximation::kTanh>(input, output, first, last);
    forward_as<Number, GeluApproximation::kNone>(input, output, first, last);
  });
}

void backward(GeluApproximation approximation, const ElementSpan& input, const ElementSpan& output_gradient,
              const ElementSpan& input_gradient, int64_t first, int64_t last) {
  with_number(input.format, [&](auto number) {
    using Number = decltype(number);
    if (approximation == GeluApproximation::kTanh)
      return backward_as<Number, GeluApproximation::kTanh>(input, output_gradient, input_gradient, first, last);
    backward_as<Number, GeluApproximation::kNone>(input, output_gradient, input_gradient, first, last);
  });
}

}  // namespace

GeluKernels gelu_kernels() { return {forward, backward}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
