// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantized/quantized_weight.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/quantized/code_kernels.hpp"
#include "kernels/quantized/reference_product.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kMinElementsOfThread = 1 << 15;

int64_t grain_of(int64_t columns) { return std::max<int64_t>(1, kMinElementsOfThread / std::max<int64_t>(1, columns)); }

int64_t stored_bytes(Format format) { return format == Format::kFloat ? 4 : 2; }

// Finite numbers from -1 to 1 in ascending order, as integers that can be halved.
float ordered_number(int32_t order) {
  const int32_t bits = order >= 0 ? order : static_cast<int32_t>(0x80000000u) - order;
  float number = 0;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// The largest numbers whose nearest value is at most each value of the book, by bisection with the definition: kernels
// choose the same codes, also where a difference of float32 is rounded.
CodeBorders find_borders(const WeightFormat& format) {
  std::array<uint8_t, 16> codes{};
  for (uint8_t code = 0; code < 16; code++) codes[code] = code;
  const auto value = [&](uint8_t code) { return reference::decode(format, code); };
  std::stable_sort(codes.begin(), codes.end(), [&](uint8_t a, uint8_t b) { return value(a) < value(b); });
  CodeBorders found{};
  for (size_t i = 0; i < codes.size(); i++) found.codes[i] = codes[i];
  constexpr int32_t kOne = 0x3f800000;
  for (size_t i = 0; i + 1 < codes.size(); i++) {
    int32_t below = -kOne, above = kOne + 1;  // the border is at or above `below`
    while (above - below > 1) {
      const int32_t middle = below + (above - below) / 2;
      if (value(reference::encode(format, ordered_number(middle))) <= value(codes[i]))
        below = middle;
      else
        above = middle;
    }
    found.borders[i] = ordered_number(below);
  }
  // Zeros with either sign have one code.
  for (size_t i = 0; i + 1 < codes.size(); i++)
    if (value(codes[i]) == value(codes[i + 1])) found.codes[i] = found.codes[i + 1] = reference::encode(format, 0);
  return found;
}

const CodeBorders& borders_of(const WeightFormat& format) {
  static const CodeBorders nf4 = find_borders({WeightCode::kNf4}), fp4 = find_borders({WeightCode::kFp4});
  return format.code == WeightCode::kFp4 ? fp4 : nf4;
}

}  // namespace

std::optional<int64_t> quantize_weight(const void* values, Format values_format, int64_t rows, int64_t columns,
                                       const WeightFormat& format, uint8_t* codes, float* scales, float* offsets) {
  check_format(format);
  const CodeKernels kernels = ACCEL_FASTEST(code_kernels)();
  const CodeBorders& borders = borders_of(format);
  const int64_t groups = groups_of_row(format, columns);
  std::atomic<int64_t> first_bad{INT64_MAX};
  parallel_for(rows, grain_of(columns), [&](int64_t begin, int64_t end) {
    const at::Tensor exact = at::empty({columns}, at::kFloat);
    for (int64_t row = begin; row < end; row++) {
      const int64_t bad = kernels.quantize_row(
          static_cast<const char*>(values) + row * columns * stored_bytes(values_format), values_format, columns,
          format, borders, exact.mutable_data_ptr<float>(), codes + row * row_bytes(format, columns),
          scales + row * groups, format.has_offsets ? offsets + row * groups : nullptr);
      if (bad < 0) continue;
      int64_t least = first_bad;
      while (row * groups + bad < least && !first_bad.compare_exchange_weak(least, row * groups + bad)) {
      }
      return;
    }
  });
  if (first_bad == INT64_MAX) return std::nullopt;
  return first_bad;
}

void dequantize_weight(const QuantizedWeight& weight, int64_t first_row, int64_t rows, void* values,
                       Format values_format) {
  const CodeKernels kernels = ACCEL_FASTEST(code_kernels)();
  const int64_t bytes = weight.columns * stored_bytes(values_format);
  parallel_for(rows, grain_of(weight.columns), [&](int64_t begin, int64_t end) {
    const at::Tensor exact = at::empty({weight.columns}, at::kFloat);
    for (int64_t row = begin; row < end; row++)
      kernels.dequantize_row(weight, first_row + row, exact.mutable_data_ptr<float>(),
                             static_cast<char*>(values) + row * bytes, values_format);
  });
}

}  // namespace accel::kernels
