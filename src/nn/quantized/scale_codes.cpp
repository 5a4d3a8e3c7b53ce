// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/scale_codes.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace accel::nn {
namespace {

constexpr int kExponents = 7;

std::vector<float> book_values() {
  std::vector<float> values = {0, 1};
  double power = std::pow(10.0, 1 - kExponents);
  for (int exponent = 0; exponent < kExponents; exponent++, power = std::pow(10.0, exponent + 1 - kExponents)) {
    // The middles of equal parts of [0.1, 1], with bounds from both ends, rounded once, as LibTorch's linspace has
    // them.
    const int parts = 1 << exponent;
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    const auto bound = [&](int i) {
      return 2 * i <= parts ? std::fma(step, static_cast<float>(i), 0.1f)
                            : std::fma(-step, static_cast<float>(parts - i), 1.0f);
    };
    for (int i = 0; i < parts; i++) {
      const float middle = (bound(i) + bound(i + 1)) / 2.0f;
      const auto value = static_cast<float>(static_cast<float>(power) * middle);
      values.push_back(value);
      values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

const std::vector<float>& book() {
  static const auto& values = *new std::vector<float>(book_values());
  return values;
}

// The nearest value; of two, the smaller one.
uint8_t nearest_code(float number) {
  const std::vector<float>& values = book();
  const auto above = std::lower_bound(values.begin(), values.end(), number);
  if (above == values.begin()) return 0;
  if (above == values.end()) return static_cast<uint8_t>(values.size() - 1);
  const auto below = above - 1;
  return static_cast<uint8_t>((number - *below <= *above - number ? below : above) - values.begin());
}

}  // namespace

at::Tensor scale_code_book() { return at::tensor(at::ArrayRef<float>(book().data(), book().size())); }

ScaleCodes encode_scales(const at::Tensor& scales) {
  ScaleCodes encoded;
  const int64_t count = scales.numel(), blocks = (count + kScaleBlock - 1) / kScaleBlock;
  const at::Tensor mean = scales.mean();
  encoded.mean = static_cast<double>(mean.item<float>());
  const at::Tensor centered = (scales - mean).contiguous();
  encoded.codes = at::empty({count}, at::TensorOptions().dtype(at::kByte));
  encoded.magnitudes = at::empty({blocks}, at::TensorOptions().dtype(at::kFloat));
  const float* const numbers = centered.const_data_ptr<float>();
  auto* const codes = encoded.codes.mutable_data_ptr<uint8_t>();
  auto* const magnitudes = encoded.magnitudes.mutable_data_ptr<float>();
  for (int64_t block = 0; block < blocks; block++) {
    const int64_t begin = block * kScaleBlock, end = std::min(count, begin + kScaleBlock);
    float largest = 0;
    for (int64_t i = begin; i < end; i++) largest = std::max(largest, std::abs(numbers[i]));
    magnitudes[block] = largest;
    const float factor = largest > 0 ? 1.0f / largest : 0.0f;
    for (int64_t i = begin; i < end; i++) codes[i] = nearest_code(numbers[i] * factor);
  }
  return encoded;
}

at::Tensor decode_scales(const ScaleCodes& scales, const at::Tensor& book) {
  const int64_t count = scales.codes.numel(), blocks = scales.magnitudes.numel();
  const at::Tensor values = book.index_select(0, scales.codes.view(-1).to(at::kInt));
  const at::Tensor magnitudes = scales.magnitudes.view({blocks, 1}).expand({blocks, kScaleBlock}).reshape(-1);
  return values * magnitudes.narrow(0, 0, count) + scales.mean;
}

}  // namespace accel::nn
