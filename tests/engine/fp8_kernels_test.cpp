// SPDX-License-Identifier: Apache-2.0
// 8-bit floating point on the CPU: every code and every rounding against LibTorch's conversion, saturation, scales of
// every granularity, every instruction set against the others, and matmuls against their definition.
#include "kernels/fp8/fp8_kernels.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/fp8/fp8_cast_kernels.hpp"
#include "kernels/fp8/fp8_matmul.hpp"
#include "kernels/fp8/fp8_values.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/matmul/microkernel.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace fp8_kernels_test {

constexpr at::ScalarType kDtypes[] = {at::kFloat8_e4m3fn, at::kFloat8_e5m2};

struct Fp8KernelSet {
  Fp8CastKernels casts;
  Fp8Kernels packing;
};

std::vector<Fp8KernelSet> instruction_sets() {
  std::vector<Fp8KernelSet> sets = {{baseline::fp8_cast_kernels(), baseline::fp8_kernels()}};
#ifdef __x86_64__
  if (fastest_instruction_set() >= InstructionSet::kAvx2)
    sets.push_back({avx2::fp8_cast_kernels(), avx2::fp8_kernels()});
  if (fastest_instruction_set() >= InstructionSet::kAvx512)
    sets.push_back({avx512::fp8_cast_kernels(), avx512::fp8_kernels()});
#endif
  return sets;
}

constexpr at::ScalarType kNumbers[] = {at::kFloat, at::kBFloat16, at::kHalf};
constexpr Fp8Granularity kGranularities[] = {Fp8Granularity::kTensor, Fp8Granularity::kRow, Fp8Granularity::kBlock};

// The 256 codes.
at::Tensor codes(at::ScalarType dtype) { return at::arange(256, at::kByte).view(dtype); }

// Bits equal, but NaN equals NaN.
void expect_same(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor a = found.to(at::kFloat), b = expected.to(at::kFloat);
  EXPECT_TRUE(at::equal(a.isnan(), b.isnan()));
  EXPECT_TRUE(at::equal(a.nan_to_num(0, 1e9, -1e9), b.nan_to_num(0, 1e9, -1e9)));
  EXPECT_TRUE(at::equal(a.signbit().masked_fill(a.isnan(), false), b.signbit().masked_fill(b.isnan(), false)));
}

// The definition of a cast: LibTorch's own, of a number that is not too large.
at::Tensor rounded(const at::Tensor& values, at::ScalarType dtype) {
  return values.to(at::kFloat).clamp(-largest_of(dtype), largest_of(dtype)).to(dtype);
}

at::Tensor cast(const at::Tensor& values, float scale, at::ScalarType dtype) {
  return quantize_with(values, dtype, scale).values;
}

// The magnitude of the numbers that share a scale, for each number.
at::Tensor shared_magnitudes(const at::Tensor& matrix, Fp8Granularity granularity) {
  const at::Tensor magnitudes = matrix.to(at::kFloat).abs();
  if (granularity == Fp8Granularity::kTensor) return magnitudes.max().expand_as(matrix);
  if (granularity == Fp8Granularity::kRow) return magnitudes.amax(1, true).expand_as(matrix);
  const int64_t columns = matrix.size(1), blocks = (columns + kFp8Block - 1) / kFp8Block;
  const at::Tensor padded = at::zeros({matrix.size(0), blocks * kFp8Block});
  padded.slice(1, 0, columns).copy_(magnitudes);
  return padded.view({-1, blocks, kFp8Block}).amax(2).repeat_interleave(kFp8Block, 1).slice(1, 0, columns);
}

// The definition of a scale, by numbers that a float64 has exactly.
float defined_scale(double magnitude, at::ScalarType dtype, Fp8Granularity granularity, int margin) {
  const double largest = largest_of(dtype);
  if (magnitude == 0 || !std::isfinite(magnitude)) return 1;
  if (granularity != Fp8Granularity::kBlock)
    return static_cast<float>(largest) / static_cast<float>(magnitude) * std::ldexp(1.0F, -margin);
  int power = -200;
  while (magnitude * std::ldexp(1.0, power + 1) <= largest) power++;
  return std::ldexp(1.0F, power - margin);
}

// The numbers that a cast matrix has by the definition.
at::Tensor defined_values(const at::Tensor& matrix, at::ScalarType dtype, Fp8Granularity granularity, int margin) {
  const at::Tensor magnitudes = shared_magnitudes(matrix, granularity).contiguous();
  const at::Tensor scales = at::empty_like(magnitudes);
  for (int64_t i = 0; i < matrix.numel(); i++)
    scales.mutable_data_ptr<float>()[i] =
        defined_scale(magnitudes.const_data_ptr<float>()[i], dtype, granularity, margin);
  return rounded(matrix.to(at::kFloat) * scales, dtype).to(at::kFloat) * scales.reciprocal();
}

TEST(Fp8Kernels, EveryCodeHasLibTorchsValue) {
  for (const auto dtype : kDtypes)
    for (const auto number : kNumbers)
      for (const int64_t repeats : {1, 5})
        for (const float scale : {1.0F, 0.3F, 3e-39F, 1e38F}) {
          const at::Tensor values = codes(dtype).view(at::kByte).repeat({repeats}).view(dtype);
          expect_same(dequantize({values, at::full({1}, scale)}, number), (values.to(at::kFloat) * scale).to(number));
        }
}

// Codes that are no NaN take other ways where they are many.
TEST(Fp8Kernels, FiniteCodesHaveLibTorchsValue) {
  for (const auto dtype : kDtypes) {
    const at::Tensor any = at::empty({10000}, at::kByte).random_();
    const at::Tensor values = any.masked_fill(any.view(dtype).to(at::kFloat).isfinite().logical_not(), 0).view(dtype);
    for (const auto number : kNumbers)
      for (const float scale : {1.0F, 0.7F, 1e-6F, 1e30F})
        for (const int64_t count : {1, 15, 63, 64, 129, 10000})
          expect_same(dequantize({values.slice(0, 0, count).clone(), at::full({1}, scale)}, number),
                      (values.slice(0, 0, count).to(at::kFloat) * scale).to(number));
  }
}

// All numbers whose last bits of the mantissa decide about the rounding, between any two codes and at the middle.
TEST(Fp8Kernels, RoundsToTheNearestAndTiesToEven) {
  for (const auto dtype : kDtypes) {
    const at::Tensor known = std::get<0>(codes(dtype).to(at::kFloat).nan_to_num(0, 0, 0).sort());
    const at::Tensor low = known.slice(0, 0, 255), high = known.slice(0, 1, 256), middle = (low + high) / 2;
    for (const at::Tensor& values : {low, middle, middle * (1 + 0x1p-20), middle * (1 - 0x1p-20), high})
      expect_same(cast(values, 1, dtype), values.to(dtype));
    const at::Tensor noise = at::randn({20000}) * at::pow(10, at::randn({20000}) * 2);
    for (const auto number : kNumbers)
      for (const float scale : {1.0F, 0.37F, 1e-38F, 1e36F})
        expect_same(cast(noise.to(number), scale, dtype), rounded(noise.to(number).to(at::kFloat) * scale, dtype));
  }
}

TEST(Fp8Kernels, EveryNumberOf16BitsIsRoundedAsLibTorchDoes) {
  const at::Tensor bits = at::arange(65536, at::kInt).to(at::kShort);
  for (const auto dtype : kDtypes)
    for (const auto number : {at::kBFloat16, at::kHalf})
      for (const float scale : {1.0F, 0.1F, 300.0F})
        expect_same(cast(bits.view(number), scale, dtype), rounded(bits.view(number).to(at::kFloat) * scale, dtype));
}

TEST(Fp8Kernels, TooLargeNumbersSaturateAndNanStays) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto dtype : kDtypes)
    for (const auto number : kNumbers)
      for (const float scale : {1.0F, 0x1p-30F}) {
        const float largest = largest_of(dtype) / scale;
        if (number == at::kHalf && scale < 1) continue;  // there is no such half
        const at::Tensor values =
            at::tensor({largest * 1.125F, largest, kInfinity, -kInfinity, largest * -1.5F, NAN, -0.0F, 0.0F})
                .to(number);
        for (const int64_t repeats : {1, 300}) {
          Fp8Counts counts;
          const at::Tensor found = quantize_with(values.repeat({repeats}), dtype, scale, &counts)
                                       .values.slice(0, 8 * (repeats - 1))
                                       .to(at::kFloat);
          for (int64_t i : {0, 1, 2}) EXPECT_EQ(found[i].item<float>(), largest_of(dtype));
          for (int64_t i : {3, 4}) EXPECT_EQ(found[i].item<float>(), -largest_of(dtype));
          EXPECT_TRUE(std::isnan(found[5].item<float>()));
          EXPECT_TRUE(std::signbit(found[6].item<float>()));
          EXPECT_TRUE(std::isnan(counts.largest));
          EXPECT_EQ(counts.saturated, 4 * repeats) << dtype << ' ' << number;
        }
      }
}

TEST(Fp8Kernels, CountsTheNumbersThatRoundingWouldTakeBeyondTheLargest) {
  const auto saturated = [](float value, at::ScalarType dtype) {
    Fp8Counts counts{1000, 5};
    quantize_with(at::tensor({0.5F, value}), dtype, 1, &counts);
    EXPECT_EQ(counts.largest, std::max(1000.0F, value));
    return counts.saturated - 5;
  };
  EXPECT_EQ(saturated(464, at::kFloat8_e4m3fn), 0) << "a tie, to even";
  EXPECT_EQ(saturated(464.1F, at::kFloat8_e4m3fn), 1);
  EXPECT_EQ(saturated(61439, at::kFloat8_e5m2), 0);
  EXPECT_EQ(saturated(61440, at::kFloat8_e5m2), 1);
}

TEST(Fp8Kernels, EveryInstructionSetComputesTheSameBits) {
  constexpr int64_t kCount = 1000;
  const at::Tensor matrix = at::empty({84, 152}, at::kByte).random_();
  const at::Tensor bytes = at::empty({kCount}, at::kByte).random_(), many_scales = at::rand({kCount}) * 3;
  for (const auto dtype : kDtypes)
    for (const auto number : kNumbers) {
      const Float8Format format = float8_format(dtype);
      const at::Tensor values = (at::randn({kCount}) * 100).to(number);
      values[700] = std::numeric_limits<float>::infinity();  // in a run of its own
      values[900] = NAN;
      std::vector<std::vector<at::Tensor>> results;
      for (const Fp8KernelSet& kernels : instruction_sets()) {
        std::vector<at::Tensor> found;
        for (const int64_t run : {1, 32, 250, 1000}) {
          const at::Tensor stored = at::zeros({kCount}, at::kByte), read = at::zeros({kCount}, number);
          const at::Tensor largest = at::zeros({(kCount + run - 1) / run});
          const auto* const scales = many_scales.const_data_ptr<float>();
          const Fp8Counts counts = kernels.casts.quantize(span_of(values), 5, kCount - 5, scales, run, format,
                                                          stored.mutable_data_ptr<uint8_t>());
          kernels.casts.dequantize(bytes.const_data_ptr<uint8_t>(), format, scales, run, span_of(read), 5, kCount - 5);
          kernels.casts.largest_magnitudes(span_of(values), 5, kCount - 5, run, largest.mutable_data_ptr<float>());
          const at::Tensor found_scales = at::empty_like(largest), reciprocals = at::empty_like(largest);
          for (const bool powers_of_two : {false, true}) {
            kernels.casts.find_scales(largest.const_data_ptr<float>(), largest.numel(), format, 2, powers_of_two,
                                      found_scales.mutable_data_ptr<float>(), reciprocals.mutable_data_ptr<float>());
            found.push_back(found_scales.clone());
            found.push_back(reciprocals.clone());
          }
          for (const at::Tensor& tensor :
               {stored, read.view(number == at::kFloat ? at::kInt : at::kShort), largest.view(at::kInt),
                at::full({1}, counts.largest).view(at::kInt), at::full({}, counts.saturated)})
            found.push_back(tensor);
        }
        for (const bool transposed : {false, true})
          for (const bool has_scales : {false, true}) {
            const int64_t lines = transposed ? 84 : 83, inner = transposed ? 149 : 151, blocks = 5;
            Fp8PackSource block{matrix.const_data_ptr<uint8_t>(), transposed ? 84 : 152, format, transposed, {}};
            const at::Tensor powers = at::where(at::arange(blocks * lines) % 3 == 0, 0.25, 2.0).to(at::kFloat);
            if (has_scales)
              block.scales = {powers.const_data_ptr<float>(), transposed ? 1 : blocks, transposed ? lines : 1};
            for (const bool is_paired : {false, true}) {
              const Fp8Packing packing = is_paired ? kernels.packing.in_bfloat16 : kernels.packing.in_float32;
              const int64_t units = is_paired ? (inner + 1) / 2 : inner;
              const at::Tensor by_line = at::zeros({lines, units}, at::kInt);
              const at::Tensor by_unit = at::zeros({units, lines}, at::kInt);
              packing.pack_lines(block, lines, inner, reinterpret_cast<uint32_t*>(by_line.mutable_data_ptr<int32_t>()),
                                 units);
              packing.pack_columns(block, lines, inner,
                                   reinterpret_cast<uint32_t*>(by_unit.mutable_data_ptr<int32_t>()), lines);
              EXPECT_TRUE(at::equal(by_line, by_unit.t())) << transposed << has_scales << is_paired;
              found.push_back(by_line);
            }
          }
        results.push_back(found);
      }
      for (const auto& found : results)
        for (size_t i = 0; i < found.size(); i++) EXPECT_TRUE(at::equal(found[i], results[0][i])) << i;
    }
}

TEST(Fp8KernelsScales, EqualTheDefinition) {
  struct Shape {
    int64_t rows, columns;
  };
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{33, 70}, Shape{64, 32}, Shape{70, 101}, Shape{2, 1031}})
    for (const auto dtype : kDtypes)
      for (const auto number : kNumbers)
        for (const auto granularity : kGranularities)
          for (const int margin : {0, 3}) {
            SCOPED_TRACE(std::to_string(shape.rows) + "x" + std::to_string(shape.columns) + " granularity " +
                         std::to_string(static_cast<int>(granularity)));
            const at::Tensor spread = at::rand({shape.rows, 1}) * at::rand({1, shape.columns}) * 100;
            const at::Tensor matrix = (at::randn({shape.rows, shape.columns}) * spread).to(number);
            Fp8Counts counts;
            const Fp8Matrix small = quantize(matrix, dtype, granularity, margin, &counts);
            EXPECT_EQ(granularity_of(small),
                      shape.rows == 1 && granularity == Fp8Granularity::kRow ? Fp8Granularity::kTensor : granularity);
            expect_same(dequantize(small, at::kFloat), defined_values(matrix, dtype, granularity, margin));
            EXPECT_EQ(counts.largest, matrix.to(at::kFloat).abs().max().item<float>());
            EXPECT_EQ(counts.saturated, 0);
            // The transposed matrix in the same place.
            counts = {};
            const Fp8Matrix columns = quantize_columns(matrix, dtype, granularity, margin, &counts);
            const Fp8Matrix copied = quantize(matrix.t().contiguous(), dtype, granularity, margin);
            EXPECT_TRUE(columns.values.t().is_contiguous());
            expect_same(columns.values, copied.values);
            EXPECT_TRUE(at::equal(columns.scales, copied.scales));
            expect_same(dequantize(columns, at::kBFloat16), dequantize(copied, at::kBFloat16));
            EXPECT_EQ(counts.largest, matrix.to(at::kFloat).abs().max().item<float>());
            EXPECT_EQ(counts.saturated, 0);
          }
}

TEST(Fp8KernelsScales, ZerosInfinitiesAndNanHaveTheScale1) {
  for (const auto granularity : kGranularities) {
    at::Tensor matrix = at::zeros({4, 64});
    matrix[1].fill_(0x1p-140F);
    matrix[2][3] = std::numeric_limits<float>::infinity();
    matrix[3][40] = NAN;
    Fp8Counts counts;
    const Fp8Matrix small = quantize(matrix, at::kFloat8_e4m3fn, granularity, 0, &counts);
    EXPECT_TRUE(std::isnan(counts.largest));
    EXPECT_EQ(counts.saturated, 1);
    const at::Tensor expected = at::ones_like(small.scales);
    if (granularity == Fp8Granularity::kBlock) expected[1].fill_(0x1p-126F);  // the least one that has a reciprocal
    EXPECT_TRUE(at::equal(small.scales, expected));
    const at::Tensor values = small.values.to(at::kFloat);
    EXPECT_EQ(values[2][3].item<float>(), 448);
    EXPECT_TRUE(std::isnan(values[3][40].item<float>()));
  }
  EXPECT_EQ(scale_of(0, at::kFloat8_e4m3fn), 1);
  EXPECT_EQ(scale_of(2, at::kFloat8_e4m3fn, 1), 112);
  EXPECT_EQ(scale_of(std::numeric_limits<float>::infinity(), at::kFloat8_e5m2), 1);
  EXPECT_EQ(scale_of(NAN, at::kFloat8_e5m2), 1);
  EXPECT_EQ(scale_of(3e38F, at::kFloat8_e4m3fn, 32), 1) << "a scale without a reciprocal";
}

TEST(Fp8KernelsScales, EmptyMatrices) {
  for (const auto granularity : kGranularities)
    for (const auto& sizes : {std::vector<int64_t>{0, 5}, std::vector<int64_t>{5, 0}, std::vector<int64_t>{0, 0}}) {
      const Fp8Matrix rows = quantize(at::empty(sizes), at::kFloat8_e4m3fn, granularity);
      const Fp8Matrix columns = quantize_columns(at::empty(sizes), at::kFloat8_e4m3fn, granularity);
      EXPECT_EQ(dequantize(rows, at::kFloat).sizes(), at::IntArrayRef(sizes));
      EXPECT_EQ(dequantize(columns, at::kFloat).sizes(), at::IntArrayRef({sizes[1], sizes[0]}));
    }
}

// The ones that this processor has, from its fastest on.
std::vector<Fp8Arithmetic> arithmetics() {
  std::vector<Fp8Arithmetic> found;
  for (const auto arithmetic : {Fp8Arithmetic::kBfloat16, Fp8Arithmetic::kFloat32, Fp8Arithmetic::kLibTorch})
    if (arithmetic >= fastest_fp8_arithmetic() &&
        (arithmetic != Fp8Arithmetic::kFloat32 || load_microkernel() == MicrokernelStatus::kAvailable))
      found.push_back(arithmetic);
  return found;
}

// Sums of whole numbers are exact in any order.
TEST(Fp8KernelsMatmul, EqualsItsDefinition) {
  struct Shape {
    int64_t rows, inner, columns;
  };
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{64, 64, 64}, Shape{65, 33, 130}, Shape{200, 513, 96}}) {
    SCOPED_TRACE(std::to_string(shape.rows) + "x" + std::to_string(shape.inner) + "x" + std::to_string(shape.columns));
    for (const auto dtype : kDtypes) {
      const auto whole = [&](int64_t rows, int64_t columns, bool transposed) {
        const at::Tensor numbers = at::empty({rows, columns}).random_(-4, 5).to(at::kFloat);
        return transposed ? cast(numbers.t().contiguous(), 1, dtype).t() : cast(numbers, 1, dtype);
      };
      for (const bool first_transposed : {false, true})
        for (const bool second_transposed : {false, true})
          for (const auto result_dtype : {at::kFloat, at::kBFloat16}) {
            const Fp8Matrix first{whole(shape.rows, shape.inner, first_transposed), at::rand({shape.rows}) + 0.5};
            const Fp8Matrix second{whole(shape.inner, shape.columns, second_transposed), at::full({1}, 0.25f)};
            const at::Tensor bias = at::randn({shape.columns});
            const at::Tensor result = at::empty({shape.rows, shape.columns}, result_dtype);
            const at::Tensor sums = at::mm(first.values.to(at::kFloat), second.values.to(at::kFloat));
            const at::Tensor expected = sums * (first.scales * 0.25).unsqueeze(1) + bias;
            for (const Fp8Arithmetic arithmetic : arithmetics()) {
              fp8_matmul(first, second, bias, result.zero_(), arithmetic);
              EXPECT_TRUE(at::equal(result, expected.to(result_dtype))) << static_cast<int>(arithmetic);
            }
          }
    }
  }
}

// Operands of every granularity, by rows and by columns, of numbers whose sums are exact in any order.
TEST(Fp8KernelsMatmul, TakesEveryGranularity) {
  constexpr int64_t kRows = 70, kInner = 101, kColumns = 85;
  const auto of_sum = [](const Fp8Matrix& lines) {
    const bool has_blocks = granularity_of(lines) == Fp8Granularity::kBlock;
    return has_blocks ? at::ones({1}) : lines.scales;
  };
  const auto multiplied = [](const Fp8Matrix& lines) {
    if (granularity_of(lines) == Fp8Granularity::kBlock) return dequantize(lines, at::kFloat);
    return lines.values.to(at::kFloat);
  };
  for (const auto dtype : kDtypes)
    for (const auto granularity : kGranularities)
      for (const bool by_columns : {false, true}) {
        const auto whole = [&](int64_t rows, int64_t columns) {
          at::Tensor numbers = at::empty({rows, columns}).random_(-2, 3) * 2;
          numbers.select(1, 0).fill_(4);  // so that scales are powers of two
          if (!by_columns) return quantize(numbers, dtype, granularity);
          numbers = numbers.t().contiguous();
          numbers[0].fill_(4);
          return quantize_columns(numbers, dtype, granularity);
        };
        const Fp8Matrix first = whole(kRows, kInner), second = whole(kColumns, kInner);
        const at::Tensor bias = at::randn({kColumns}), result = at::empty({kRows, kColumns});
        const at::Tensor sums = at::mm(multiplied(first), multiplied(second).t());
        const at::Tensor expected = sums * (of_sum(first).unsqueeze(1) * of_sum(second)) + bias;
        for (const Fp8Arithmetic arithmetic : arithmetics()) {
          fp8_matmul(first, {second.values.t(), second.scales}, bias, result.zero_(), arithmetic);
          EXPECT_TRUE(at::equal(result, expected)) << static_cast<int>(granularity) << by_columns;
        }
      }
}

TEST(Fp8KernelsMatmul, NoInnerElementsGiveTheBias) {
  const at::Tensor one = at::full({1}, 1.0f), bias = at::randn({3}), result = at::empty({2, 3}, at::kFloat);
  fp8_matmul({at::empty({2, 0}, at::kFloat8_e4m3fn), one}, {at::empty({0, 3}, at::kFloat8_e4m3fn), one}, bias, result);
  EXPECT_TRUE(at::equal(result, bias.expand({2, 3})));
}

}  // namespace fp8_kernels_test
}  // namespace accel::kernels
