// SPDX-License-Identifier: Apache-2.0
// Quantized weights on the CPU: codes, scales and products of every format and instruction set against the readable
// definition, over sizes that no group and no vector divides, and what is not finite.
#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/quantized/code_books.hpp"
#include "kernels/quantized/quantized_weight.hpp"
#include "kernels/quantized/reference_product.hpp"
#include "kernels/quantized/word_products.hpp"

namespace accel::kernels {
namespace quantized_kernels_test {

constexpr WeightCode kCodes[] = {WeightCode::kInt8, WeightCode::kInt4,       WeightCode::kNf4,
                                 WeightCode::kFp4,  WeightCode::kFloat8E4M3, WeightCode::kFloat8E5M2};

std::vector<WeightFormat> formats_of(int64_t group) {
  std::vector<WeightFormat> formats;
  for (const WeightCode code : kCodes) formats.push_back({code, group, false});
  formats.push_back({WeightCode::kInt8, group, true});
  formats.push_back({WeightCode::kInt4, group, true});
  return formats;
}

std::string name_of(const WeightFormat& format, int64_t rows, int64_t columns) {
  return "code " + std::to_string(static_cast<int>(format.code)) + " group " + std::to_string(format.group) +
         (format.has_offsets ? " with offsets, " : ", ") + std::to_string(rows) + " x " + std::to_string(columns);
}

std::vector<float> random_numbers(int64_t count, unsigned seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.1f * scale, scale);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = normal(generator);
  return numbers;
}

// A quantized matrix and its memory.
struct StoredWeight {
  StoredWeight(const WeightFormat& format, int64_t rows, int64_t columns)
      : codes(static_cast<size_t>(code_bytes(format, rows, columns))),
        scales(static_cast<size_t>(rows * groups_of_row(format, columns))),
        offsets(format.has_offsets ? scales.size() : 0),
        weight{format, rows, columns, codes.data(), scales.data(), format.has_offsets ? offsets.data() : nullptr} {}

  std::vector<uint8_t> codes;
  std::vector<float> scales, offsets;
  QuantizedWeight weight;
};

std::unique_ptr<StoredWeight> quantized(const std::vector<float>& values, const WeightFormat& format, int64_t rows,
                                        int64_t columns) {
  auto stored = std::make_unique<StoredWeight>(format, rows, columns);
  EXPECT_FALSE(quantize_weight(values.data(), Format::kFloat, rows, columns, format, stored->codes.data(),
                               stored->scales.data(), stored->offsets.data())
                   .has_value());
  return stored;
}

float relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < found.size(); i++) {
    error += std::pow(double{found[i]} - expected[i], 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  return static_cast<float>(std::sqrt(error / norm));
}

TEST(QuantizedKernels, CodeBooksAreTheirDefinition) {
  // Quantile of the normal distribution by bisection.
  const auto quantile = [](double probability) {
    double low = -10, high = 10;
    for (int i = 0; i < 200; i++) {
      const double middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
    }
    return low;
  };
  const double outermost = 1 - (1.0 / 32 + 1.0 / 30) / 2, largest = quantile(outermost);
  for (int i = 0; i < 8; i++)
    EXPECT_NEAR(kNf4Values[15 - i], quantile(outermost + (0.5 - outermost) * i / 8) / largest, 1e-6);
  for (int i = 0; i < 7; i++)
    EXPECT_NEAR(kNf4Values[i], -quantile(outermost + (0.5 - outermost) * i / 7) / largest, 1e-6);
  EXPECT_EQ(kNf4Values[7], 0);
  // Sign, two bits of exponent, one of mantissa, of which the largest number is 12.
  const float fp4[] = {0, 0.0625f, 8, 12, 4, 6, 2, 3};
  for (int code = 0; code < 8; code++) {
    EXPECT_FLOAT_EQ(fp4_value(code), fp4[code] / 12);
    EXPECT_FLOAT_EQ(fp4_value(code + 8), -fp4[code] / 12);
  }
}

TEST(QuantizedKernels, SizesOfCodesAndGroups) {
  const WeightFormat nf4{WeightCode::kNf4, 64, false};
  EXPECT_EQ(code_bytes(nf4, 3, 65), 3 * 33);
  EXPECT_EQ(groups_of_row(nf4, 65), 2);
  EXPECT_EQ(groups_of_row({WeightCode::kInt8, 0, false}, 65), 1);
  EXPECT_EQ(code_bytes({WeightCode::kInt8, 0, false}, 3, 65), 195);
  EXPECT_EQ(groups_of_row(nf4, 0), 0);
}

TEST(QuantizedKernels, RejectsWrongFormats) {
  EXPECT_THROW(check_format({WeightCode::kNf4, 64, true}), Error);
  EXPECT_THROW(check_format({WeightCode::kInt8, -1, false}), Error);
}

TEST(QuantizedKernels, CodesAndScalesAreThoseOfTheDefinition) {
  for (const int64_t group : {0, 32, 64, 100, 128, 7})
    for (const int64_t columns : {1, 2, 31, 64, 130, 333})
      for (const WeightFormat& format : formats_of(group)) {
        constexpr int64_t kRows = 5;
        const std::vector<float> values = random_numbers(kRows * columns, 1, 0.02f);
        const auto found = quantized(values, format, kRows, columns);
        StoredWeight expected(format, kRows, columns);
        EXPECT_FALSE(reference::quantize(values.data(), Format::kFloat, kRows, columns, format, expected.codes.data(),
                                         expected.scales.data(), expected.offsets.data()));
        EXPECT_EQ(found->codes, expected.codes) << name_of(format, kRows, columns);
        EXPECT_EQ(found->scales, expected.scales) << name_of(format, kRows, columns);
        EXPECT_EQ(found->offsets, expected.offsets) << name_of(format, kRows, columns);
        std::vector<float> numbers(values.size()), of_definition(values.size());
        dequantize_weight(found->weight, 0, kRows, numbers.data(), Format::kFloat);
        reference::dequantize(found->weight, 0, kRows, of_definition.data(), Format::kFloat);
        EXPECT_EQ(numbers, of_definition) << name_of(format, kRows, columns);
        std::vector<c10::BFloat16> halves(values.size());
        dequantize_weight(found->weight, 0, kRows, halves.data(), Format::kBFloat16);
        for (size_t i = 0; i < halves.size(); i++) ASSERT_EQ(halves[i].x, c10::BFloat16(numbers[i]).x);
      }
}

// Every float near a border between two codes, and both borders' neighbours.
TEST(QuantizedKernels, TiesBecomeTheCodesOfTheDefinition) {
  for (const WeightCode code : {WeightCode::kNf4, WeightCode::kFp4}) {
    const WeightFormat format{code, 0, false};
    std::vector<float> values = {1.0f};  // the scale
    for (uint8_t a = 0; a < 16; a++)
      for (uint8_t b = 0; b < 16; b++) {
        const float middle = (reference::decode(format, a) + reference::decode(format, b)) / 2;
        float below = middle, above = middle;
        values.push_back(middle);
        for (int i = 0; i < 3; i++) {
          values.push_back(below = std::nextafter(below, -1.0f));
          values.push_back(above = std::nextafter(above, 1.0f));
        }
      }
    for (float& value : values) value = std::min(1.0f, std::max(-1.0f, value));
    const auto columns = static_cast<int64_t>(values.size());
    const auto found = quantized(values, format, 1, columns);
    for (int64_t i = 0; i < columns; i++)
      ASSERT_EQ(reference::code_of(found->weight, 0, i), reference::encode(format, values[static_cast<size_t>(i)]))
          << values[static_cast<size_t>(i)];
  }
}

TEST(QuantizedKernels, ZerosHaveScaleZeroAndWhatIsNotFiniteIsFound) {
  for (const WeightFormat& format : formats_of(32)) {
    std::vector<float> values = random_numbers(4 * 80, 2, 1);
    std::fill(values.begin() + 80 + 32, values.begin() + 80 + 64, 0.0f);
    const auto found = quantized(values, format, 4, 80);
    EXPECT_EQ(found->scales[3 + 1], 0);
    std::vector<float> row(80);
    dequantize_weight(found->weight, 1, 1, row.data(), Format::kFloat);
    for (size_t i = 32; i < 64; i++) EXPECT_EQ(row[i], 0);
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      values[3 * 80 + 70] = bad;
      values[2 * 80 + 40] = bad;
      EXPECT_EQ(quantize_weight(values.data(), Format::kFloat, 4, 80, format, found->codes.data(), found->scales.data(),
                                found->offsets.data()),
                2 * 3 + 1)
          << name_of(format, 4, 80);
    }
  }
}

// Whether kernels round the values of codes to 12 bits.
bool code_is_rounded(WeightCode code) {
  return code == WeightCode::kNf4 || code == WeightCode::kFloat8E4M3 || code == WeightCode::kFloat8E5M2;
}

// Errors of a product of `count` inputs, with and without a bias, exact and with 8 bits.
void expect_product(const WeightFormat& format, int64_t rows, int64_t columns, int64_t count) {
  const std::vector<float> values = random_numbers(rows * columns, 3, 0.02f);
  const auto stored = quantized(values, format, rows, columns);
  const std::vector<float> inputs = random_numbers(count * columns, 4, 1), bias = random_numbers(rows, 5, 1);
  std::vector<float> found(static_cast<size_t>(count * rows)), expected(found.size());
  for (const float* const of_bias : {static_cast<const float*>(nullptr), bias.data()}) {
    multiply_quantized(stored->weight, inputs.data(), count, of_bias, found.data(), Format::kFloat);
    reference::multiply(stored->weight, inputs.data(), count, of_bias, expected.data(), Format::kFloat);
    EXPECT_LT(relative_error(found, expected), code_is_rounded(format.code) ? 1e-3f : 1e-4f)
        << name_of(format, rows, columns) << ", " << count << " inputs";
  }
  std::vector<float> rounded(inputs.size());
  reference::round_inputs(format, inputs.data(), count, columns, rounded.data());
  multiply_quantized_dynamic(stored->weight, inputs.data(), count, bias.data(), found.data(), Format::kFloat);
  reference::multiply(stored->weight, rounded.data(), count, bias.data(), expected.data(), Format::kFloat);
  EXPECT_LT(relative_error(found, expected), 1e-3f) << name_of(format, rows, columns) << ", " << count << " inputs";
}

TEST(QuantizedKernels, ProductsAreThoseOfTheDefinition) {
  for (const int64_t group : {0, 16, 32, 64, 96, 128, 256})
    for (const int64_t columns : {1, 33, 255, 520})
      for (const WeightFormat& format : formats_of(group))
        for (const int64_t count : {1, 2, 3, 4, 5, 8, 33}) expect_product(format, 14, columns, count);
}

TEST(QuantizedKernels, AnyNumberOfInputs) {
  for (const WeightCode code : {WeightCode::kInt8, WeightCode::kNf4, WeightCode::kFloat8E4M3})
    for (int64_t count = 1; count <= 40; count++) expect_product({code, 64, false}, 7, 200, count);
  for (const WeightCode code : {WeightCode::kInt4, WeightCode::kFloat8E4M3})
    expect_product({code, 64, false}, 7, 200, 100);
}

TEST(QuantizedKernels, ManyRowsAndLongColumns) {
  for (const WeightFormat& format : formats_of(0)) expect_product(format, 37, 9000, 2);
  for (const WeightFormat& format : formats_of(128)) expect_product(format, 500, 1000, 6);
}

TEST(QuantizedKernels, EmptyProducts) {
  StoredWeight empty({WeightCode::kInt8, 0, false}, 3, 0);
  const std::vector<float> bias = {1, 2, 3};
  std::vector<float> outputs(6, 7);
  multiply_quantized(empty.weight, nullptr, 2, bias.data(), outputs.data(), Format::kFloat);
  EXPECT_EQ(outputs, (std::vector<float>{1, 2, 3, 1, 2, 3}));
  multiply_quantized(empty.weight, nullptr, 0, bias.data(), outputs.data(), Format::kFloat);
}

TEST(QuantizedKernels, ProductsInBfloat16) {
  for (const WeightFormat& format : formats_of(64)) {
    constexpr int64_t kRows = 20, kColumns = 300, kCount = 6;
    const auto stored = quantized(random_numbers(kRows * kColumns, 6, 0.02f), format, kRows, kColumns);
    const std::vector<float> numbers = random_numbers(kCount * kColumns, 7, 1), offsets = random_numbers(kRows, 8, 1);
    const std::vector<c10::BFloat16> inputs(numbers.begin(), numbers.end()), bias(offsets.begin(), offsets.end());
    std::vector<c10::BFloat16> found(kCount * kRows), expected(kCount * kRows);
    multiply_quantized(stored->weight, inputs.data(), kCount, bias.data(), found.data(), Format::kBFloat16);
    reference::multiply(stored->weight, inputs.data(), kCount, bias.data(), expected.data(), Format::kBFloat16);
    EXPECT_LT(relative_error({found.begin(), found.end()}, {expected.begin(), expected.end()}), 4e-3f)
        << name_of(format, kRows, kColumns);
  }
}

TEST(QuantizedKernels, InputsThatAreNotFiniteGiveNan) {
  for (const WeightFormat& format : formats_of(64))
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
      for (const bool is_dynamic : {false, true}) {
        const auto stored = quantized(random_numbers(9 * 200, 6, 0.02f), format, 9, 200);
        std::vector<float> inputs = random_numbers(2 * 200, 7, 1), outputs(2 * 9);
        inputs[230] = bad;
        (is_dynamic ? multiply_quantized_dynamic : multiply_quantized)(stored->weight, inputs.data(), 2, nullptr,
                                                                       outputs.data(), Format::kFloat);
        for (size_t row = 0; row < 9; row++) {
          EXPECT_TRUE(std::isfinite(outputs[row]));
          EXPECT_FALSE(std::isfinite(outputs[9 + row])) << name_of(format, 9, 200);
        }
      }
}

// Outliers as language models have them: a few columns a thousand times larger.
TEST(QuantizedKernels, OutliersLeaveTheOtherColumnsTheirBits) {
  for (const WeightFormat& format : formats_of(64)) {
    const auto stored = quantized(random_numbers(50 * 512, 6, 0.02f), format, 50, 512);
    std::vector<float> inputs = random_numbers(512, 7, 1), found(50), expected(50);
    inputs[100] = 300;
    multiply_quantized(stored->weight, inputs.data(), 1, nullptr, found.data(), Format::kFloat);
    reference::multiply(stored->weight, inputs.data(), 1, nullptr, expected.data(), Format::kFloat);
    EXPECT_LT(relative_error(found, expected), 1e-3f) << name_of(format, 50, 512);
  }
}

std::vector<WordKernels> instruction_sets() {
  std::vector<WordKernels> sets = {baseline::word_kernels()};
#ifdef __x86_64__
  if (fastest_instruction_set() >= InstructionSet::kAvx2) sets.push_back(avx2::word_kernels());
  if (fastest_instruction_set() >= InstructionSet::kAvx512) sets.push_back(avx512::word_kernels());
#endif
  return sets;
}

std::vector<float> multiplied_by(const WordKernels& kernels, const QuantizedWeight& weight,
                                 const std::vector<float>& inputs, int64_t count) {
  const WordLayout layout = kernels.layout(weight.format, weight.columns);
  const auto of_rows = [&](int64_t size) { return static_cast<size_t>(count * size); };
  std::vector<int16_t> words(of_rows(layout.words)), scratch(static_cast<size_t>(kWordScratchRows * layout.words));
  std::vector<float> scales(of_rows(layout.scales)), sums(of_rows(layout.sums)),
      exact(static_cast<size_t>(layout.words)), outputs(of_rows(weight.rows));
  for (int64_t row = 0; row < count; row++)
    kernels.round_row(weight.format, weight.columns, inputs.data() + row * weight.columns, Format::kFloat, 32767,
                      exact.data(), words.data() + row * layout.words, scales.data() + row * layout.scales,
                      sums.data() + row * layout.sums);
  const WordProduct product{
      weight, {count, layout, words.data(), scales.data(), sums.data()}, Format::kFloat, nullptr, outputs.data()};
  kernels.multiply(product, 0, count, 0, weight.rows, scratch.data());
  return outputs;
}

TEST(QuantizedKernels, EveryInstructionSetIsTested) {
  for (const WordKernels& kernels : instruction_sets())
    for (const int64_t group : {0, 32, 64, 128, 256})
      for (const int64_t columns : {30, 257, 700})
        for (const WeightFormat& format : formats_of(group)) {
          if (!kernels.is_available(format, columns)) continue;
          const auto stored = quantized(random_numbers(11 * columns, 6, 0.02f), format, 11, columns);
          for (const int64_t count : {1, 2, 3, 4, 7, 19}) {
            const std::vector<float> inputs = random_numbers(count * columns, 7, 1);
            std::vector<float> expected(static_cast<size_t>(count * 11));
            reference::multiply(stored->weight, inputs.data(), count, nullptr, expected.data(), Format::kFloat);
            EXPECT_LT(relative_error(multiplied_by(kernels, stored->weight, inputs, count), expected), 1e-3f)
                << name_of(format, 11, columns) << ", " << count << " inputs";
          }
        }
  EXPECT_TRUE(baseline::word_kernels().is_available({WeightCode::kInt8, 0, false}, 100));
  EXPECT_FALSE(baseline::word_kernels().is_available({WeightCode::kFloat8E4M3, 0, false}, 100));
  EXPECT_FALSE(baseline::word_kernels().is_available({WeightCode::kInt8, 100, false}, 100));
}

// The largest numbers that words and codes have, in one group: no sum of integers overflows.
TEST(QuantizedKernels, TheLargestSums) {
  for (const WordKernels& kernels : instruction_sets())
    for (const int64_t group : {0, 128, 256})
      for (const WeightFormat& format : formats_of(group)) {
        if (!kernels.is_available(format, 2048)) continue;
        std::vector<float> values(2048, 1);
        if (format.has_offsets) values[0] = -1;
        const auto stored = quantized(values, format, 1, 2048);
        const std::vector<float> inputs(2048, 3);
        std::vector<float> expected(1);
        reference::multiply(stored->weight, inputs.data(), 1, nullptr, expected.data(), Format::kFloat);
        EXPECT_LT(relative_error(multiplied_by(kernels, stored->weight, inputs, 1), expected), 1e-3f)
            << name_of(format, 1, 2048);
      }
}

}  // namespace quantized_kernels_test
}  // namespace accel::kernels
