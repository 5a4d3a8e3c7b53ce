// 8-bit floating point on the CPU: every code and every rounding against LibTorch's conversion, saturation, every
// instruction set against the others, and matmuls against their definition.
#include "kernels/fp8/fp8_kernels.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/fp8/fp8_matmul.hpp"
#include "kernels/fp8/fp8_values.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace fp8_kernels_test {

constexpr at::ScalarType kDtypes[] = {at::kFloat8_e4m3fn, at::kFloat8_e5m2};

Float8Format format_of(at::ScalarType dtype) {
  return dtype == at::kFloat8_e4m3fn ? Float8Format::kE4M3 : Float8Format::kE5M2;
}

std::vector<Fp8Kernels> instruction_sets() {
  std::vector<Fp8Kernels> sets = {baseline::fp8_kernels()};
#ifdef __x86_64__
  if (fastest_instruction_set() >= InstructionSet::kAvx2) sets.push_back(avx2::fp8_kernels());
  if (fastest_instruction_set() >= InstructionSet::kAvx512) sets.push_back(avx512::fp8_kernels());
#endif
  return sets;
}

// The 256 codes.
at::Tensor codes(at::ScalarType dtype) { return at::arange(256, at::kByte).view(dtype); }

at::Tensor bytes_of(const at::Tensor& values) { return values.contiguous().view(at::kByte); }

// Bits equal, but NaN equals NaN.
void expect_same(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor a = found.to(at::kFloat), b = expected.to(at::kFloat);
  EXPECT_TRUE(at::equal(a.isnan(), b.isnan()));
  EXPECT_TRUE(at::equal(a.nan_to_num(0, 1e9, -1e9), b.nan_to_num(0, 1e9, -1e9)));
  EXPECT_TRUE(at::equal(a.signbit().masked_fill(a.isnan(), false), b.signbit().masked_fill(b.isnan(), false)));
}

TEST(Fp8Kernels, EveryCodeHasLibTorchsValue) {
  for (const auto dtype : kDtypes)
    for (const auto number : {at::kFloat, at::kBFloat16, at::kHalf})
      expect_same(dequantized(codes(dtype), 1, number), codes(dtype).to(at::kFloat).to(number));
}

// All numbers whose last bits of the mantissa decide about the rounding, between any two codes and at the middle.
TEST(Fp8Kernels, RoundsToTheNearestAndTiesToEven) {
  for (const auto dtype : kDtypes) {
    const at::Tensor known = std::get<0>(codes(dtype).to(at::kFloat).nan_to_num(0, 0, 0).sort());
    const at::Tensor low = known.slice(0, 0, 255), high = known.slice(0, 1, 256), middle = (low + high) / 2;
    for (const at::Tensor& values : {low, middle, middle * (1 + 0x1p-20), middle * (1 - 0x1p-20), high})
      expect_same(quantized(values, 1, dtype), values.to(dtype));
    const at::Tensor noise = at::randn({20000}) * at::pow(10, at::randn({20000}) * 2);
    const at::Tensor inside = noise.clamp(-largest_of(dtype), largest_of(dtype));
    for (const auto number : {at::kFloat, at::kBFloat16, at::kHalf})
      expect_same(quantized(inside.to(number), 1, dtype),
                  inside.to(number).to(at::kFloat).clamp(-largest_of(dtype), largest_of(dtype)).to(dtype));
  }
}

TEST(Fp8Kernels, TooLargeNumbersSaturateAndNanStays) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto dtype : kDtypes) {
    const float largest = largest_of(dtype);
    const at::Tensor found =
        quantized(at::tensor({largest * 1.04f, largest * 2, kInfinity, -kInfinity, -3e38f, NAN, -0.0f}), 1, dtype)
            .to(at::kFloat);
    for (int64_t i : {0, 1, 2}) EXPECT_EQ(found[i].item<float>(), largest);
    for (int64_t i : {3, 4}) EXPECT_EQ(found[i].item<float>(), -largest);
    EXPECT_TRUE(std::isnan(found[5].item<float>()));
    EXPECT_TRUE(std::signbit(found[6].item<float>()));
  }
}

TEST(Fp8Kernels, EveryInstructionSetComputesTheSameBits) {
  constexpr int64_t kCount = 1000;
  const at::Tensor values = at::randn({kCount}) * 100, bytes = at::empty({kCount}, at::kByte).random_();
  for (const auto dtype : kDtypes) {
    const Float8Format format = format_of(dtype);
    std::vector<std::vector<at::Tensor>> results;
    for (const Fp8Kernels& kernels : instruction_sets()) {
      const at::Tensor stored = at::empty({kCount}, at::kByte), read = at::empty({kCount}, at::kBFloat16);
      kernels.quantize(span_of(values), 3, format, stored.mutable_data_ptr<uint8_t>(), 0, kCount);
      kernels.dequantize(bytes.const_data_ptr<uint8_t>(), format, 0.3f, span_of(read), 0, kCount);
      std::vector<at::Tensor> found = {stored, read.view(at::kShort)};
      found.push_back(at::full({}, kernels.largest_magnitude(span_of(values), 3, kCount)));
      for (const bool transposed : {false, true}) {
        const int64_t lines = transposed ? 20 : 37, inner = transposed ? 49 : 25;
        const Fp8PackSource block{bytes.const_data_ptr<uint8_t>(), transposed ? 20 : 26, format, transposed};
        const at::Tensor by_line = at::zeros({lines, (inner + 1) / 2}, at::kInt);
        const at::Tensor by_pair = at::zeros({(inner + 1) / 2, lines}, at::kInt);
        kernels.pack_lines(block, lines, inner, reinterpret_cast<uint32_t*>(by_line.mutable_data_ptr<int32_t>()),
                           by_line.size(1));
        kernels.pack_pairs(block, lines, inner, reinterpret_cast<uint32_t*>(by_pair.mutable_data_ptr<int32_t>()),
                           lines);
        EXPECT_TRUE(at::equal(by_line, by_pair.t()));
        found.push_back(by_line);
      }
      results.push_back(found);
    }
    for (const auto& found : results)
      for (size_t i = 0; i < found.size(); i++) EXPECT_TRUE(at::equal(found[i], results[0][i])) << i;
  }
}

TEST(Fp8Kernels, RowsHaveScalesOfTheirOwn) {
  const at::Tensor matrix = at::randn({33, 70}) * at::rand({33, 1}) * 1000;
  const at::Tensor magnitudes = largest_magnitudes_of_rows(matrix);
  EXPECT_TRUE(at::equal(magnitudes, matrix.abs().amax(1)));
  EXPECT_EQ(largest_magnitude(matrix), matrix.abs().max().item<float>());
  const at::Tensor scales = 448 / magnitudes;
  const at::Tensor small = quantized_rows(matrix, scales, at::kFloat8_e4m3fn);
  expect_same(small, (matrix * scales.unsqueeze(1)).clamp(-448, 448).to(at::kFloat8_e4m3fn));
  expect_same(dequantized_rows(small, magnitudes, at::kFloat), small.to(at::kFloat) * magnitudes.unsqueeze(1));
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
        return transposed ? quantized(numbers.t().contiguous(), 1, dtype).t() : quantized(numbers, 1, dtype);
      };
      for (const bool first_transposed : {false, true})
        for (const bool second_transposed : {false, true})
          for (const auto result_dtype : {at::kFloat, at::kBFloat16}) {
            const Fp8Matrix first{whole(shape.rows, shape.inner, first_transposed), at::rand({shape.rows}) + 0.5};
            const Fp8Matrix second{whole(shape.inner, shape.columns, second_transposed), at::full({1}, 0.25f)};
            const at::Tensor bias = at::randn({shape.columns});
            const at::Tensor result = at::empty({shape.rows, shape.columns}, result_dtype);
            fp8_matmul(first, second, bias, result);
            const at::Tensor sums = at::mm(first.values.to(at::kFloat), second.values.to(at::kFloat));
            const at::Tensor expected = sums * (first.scales * 0.25).unsqueeze(1) + bias;
            EXPECT_TRUE(at::equal(result, expected.to(result_dtype)));
          }
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
