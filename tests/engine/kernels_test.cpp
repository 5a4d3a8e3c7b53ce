// SPDX-License-Identifier: Apache-2.0
// The elementwise kernels: formats, rounding, norms, every instruction set against the others, and the foreach
// updates.
#include "kernels/update/elementwise.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "kernels/instruction_set.hpp"
#include "kernels/update/foreach_update.hpp"

namespace accel::kernels {
namespace kernels_test {

constexpr int64_t kCount = 2 * kBlock + 37;  // whole blocks and a rest

at::Tensor noise(int64_t count, int64_t seed) {
  return at::randn({count}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

struct Bytes {
  at::Tensor codes;
  at::Tensor scales;
  ElementSpan span;

  Bytes(int64_t count, Format format)
      : codes(at::zeros({count}, at::kByte)), scales(at::zeros({num_blocks(count)}, at::kFloat)) {
    span.data = codes.mutable_data_ptr();
    span.scales = scales.mutable_data_ptr<float>();
    span.format = format;
  }

  void set(const at::Tensor& numbers, bool stochastic_rounding = false, uint32_t seed = 0) {
    span.stochastic_rounding = stochastic_rounding;
    copy(span_of(numbers), span, numbers.numel(), seed);
  }
  at::Tensor numbers() const {
    at::Tensor result = at::empty({codes.numel()}, at::kFloat);
    copy(span, span_of(result), codes.numel());
    return result;
  }
};

TEST(KernelsFormat, HalvesRoundAsLibTorch) {
  const at::Tensor numbers = noise(kCount, 1) * at::pow(10, noise(kCount, 2) * 3);
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    at::Tensor rounded = at::empty({kCount}, dtype);
    copy(span_of(numbers), span_of(rounded), kCount);
    EXPECT_TRUE(at::equal(rounded, numbers.to(dtype)));
    at::Tensor back = at::empty({kCount}, at::kFloat);
    copy(span_of(rounded), span_of(back), kCount);
    EXPECT_TRUE(at::equal(back, rounded.to(at::kFloat)));
  }
}

TEST(KernelsFormat, BytesKeepThreeBitsOfMantissa) {
  for (const Format format : {Format::kSigned8Bit, Format::kUnsigned8Bit}) {
    const bool is_signed = format == Format::kSigned8Bit;
    const at::Tensor numbers = is_signed ? noise(kCount, 3) : noise(kCount, 3).square();
    Bytes bytes(kCount, format);
    bytes.set(numbers);
    const at::Tensor found = bytes.numbers();
    // Half of the last bit where the number is not tiny; the smallest step of the format below.
    const double tiny = numbers.abs().max().item<double>() * (is_signed ? 0x1p-16 : 0x1p-32);
    EXPECT_TRUE(((found - numbers).abs() <= at::maximum(numbers.abs() / 16, at::full({}, tiny))).all().item<bool>());
    EXPECT_EQ(found.sign().sub(numbers.sign()).abs().mul((numbers.abs() > tiny).to(at::kFloat)).sum().item<float>(), 0);
    Bytes again(kCount, format);
    again.set(found);
    EXPECT_TRUE(at::equal(again.numbers(), found)) << "what was decoded encodes to itself";
    again.set(at::zeros({kCount}));
    EXPECT_TRUE(at::equal(again.numbers(), at::zeros({kCount})));
  }
}

TEST(KernelsFormat, SecondMomentsAboveZeroStayThere) {
  at::Tensor numbers = at::full({kBlock}, 1e-30F);
  numbers[0] = 1;
  Bytes bytes(kBlock, Format::kUnsigned8Bit);
  for (const bool stochastic_rounding : {false, true}) {
    bytes.set(numbers, stochastic_rounding, 7);
    EXPECT_GT(bytes.numbers().min().item<float>(), 0);
  }
}

TEST(KernelsFormat, NotANumberIsSeen) {
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    at::Tensor numbers = at::ones({kBlock});
    numbers[5] = wrong;
    Bytes bytes(kBlock, Format::kSigned8Bit);
    bytes.set(numbers);
    EXPECT_TRUE(bytes.numbers().isnan().all().item<bool>());
  }
}

TEST(KernelsFormat, StochasticRoundingIsUnbiased) {
  const at::Tensor numbers = at::full({1 << 16}, 1 + 0x1p-9F);  // a quarter of the way between two bfloat16
  at::Tensor rounded = at::empty({1 << 16}, at::kBFloat16);
  ElementSpan target = span_of(rounded);
  target.stochastic_rounding = true;
  copy(span_of(numbers), target, numbers.numel(), 3);
  const at::Tensor found = rounded.to(at::kFloat);
  EXPECT_NEAR((found.mean() - 1).item<double>() / 0x1p-7, 0.25, 0.01);
  EXPECT_EQ(found.max().item<float>(), 1 + 0x1p-7F);
  EXPECT_EQ(found.min().item<float>(), 1);

  const at::Tensor fifth = at::full({1 << 16}, 1.2F);
  Bytes bytes(1 << 16, Format::kUnsigned8Bit);
  bytes.set(fifth, /*stochastic_rounding=*/true, 4);
  EXPECT_NEAR(bytes.numbers().mean().item<double>(), 1.2, 1e-3);
}

// The fused loop for 8-bit states computes what the float32 loop between conversions does.
TEST(KernelsFormat, AdamOnBytesIsAdamBetweenConversions) {
  constexpr uint32_t kSeed = 11;
  for (const bool stochastic_rounding : {false, true}) {
    Bytes first(kCount, Format::kSigned8Bit), second(kCount, Format::kUnsigned8Bit);
    first.set(noise(kCount, 21));
    second.set(noise(kCount, 22).square());
    Bytes expected_first(kCount, Format::kSigned8Bit), expected_second(kCount, Format::kUnsigned8Bit);
    at::Tensor parameter = noise(kCount, 23), expected = parameter.clone();
    at::Tensor first_numbers = first.numbers(), second_numbers = second.numbers();
    const at::Tensor gradient = noise(kCount, 24);

    UpdateArguments arguments;
    arguments.count = kCount;
    arguments.seed = kSeed;
    arguments.gradient = span_of(gradient);
    const double scalars[kNumScalars] = {0.999, 0.01, 1, 0.1, 0.9, 0.1, 0.99, 0.01, 1e-8, 1, 0, 0};
    std::copy(std::begin(scalars), std::end(scalars), arguments.scalars);
    UpdateArguments plain = arguments;
    arguments.parameter = span_of(parameter);
    arguments.states[0] = first.span;
    arguments.states[1] = second.span;
    arguments.states[0].stochastic_rounding = arguments.states[1].stochastic_rounding = stochastic_rounding;
    update(UpdateKernel::kAdam, {arguments});
    plain.parameter = span_of(expected);
    plain.states[0] = span_of(first_numbers);
    plain.states[1] = span_of(second_numbers);
    update(UpdateKernel::kAdam, {plain});
    expected_first.set(first_numbers, stochastic_rounding, kSeed);
    expected_second.set(second_numbers, stochastic_rounding, kSeed);

    EXPECT_TRUE(at::equal(parameter, expected));
    EXPECT_TRUE(at::equal(first.codes, expected_first.codes));
    EXPECT_TRUE(at::equal(first.scales, expected_first.scales));
    EXPECT_TRUE(at::equal(second.codes, expected_second.codes));
    EXPECT_TRUE(at::equal(second.scales, expected_second.scales));
  }
}

TEST(KernelsNorm, AsLibTorch) {
  std::vector<at::Tensor> tensors = {noise(kCount, 1), noise(5, 2).to(at::kDouble), noise(100, 3).to(at::kBFloat16),
                                     at::empty({0})};
  const auto squares = norms(Norm::kSquares, tensors);
  const auto sums = norms(Norm::kSum, tensors);
  const auto largest = norms(Norm::kLargest, tensors);
  for (size_t i = 0; i + 1 < tensors.size(); ++i) {
    const at::Tensor exact = tensors[i].to(at::kDouble).abs();
    EXPECT_NEAR(squares[i], exact.square().sum().item<double>(), 1e-9 * kCount);
    EXPECT_NEAR(sums[i], exact.sum().item<double>(), 1e-9 * kCount);
    EXPECT_EQ(largest[i], exact.max().item<double>());
  }
  EXPECT_EQ(squares[3], 0);
  tensors[0][kBlock + 3] = std::numeric_limits<float>::quiet_NaN();
  for (const Norm norm : {Norm::kSum, Norm::kSquares, Norm::kLargest}) EXPECT_TRUE(std::isnan(norms(norm, tensors)[0]));
}

TEST(KernelsScale, MultipliesAndClamps) {
  const at::Tensor numbers = noise(kCount, 1);
  const at::Tensor half = noise(kCount, 2).to(at::kHalf);
  const at::Tensor expected = (numbers * 3).clamp(-1, 1);
  const at::Tensor expected_half = (half.to(at::kFloat) * 3).clamp(-1, 1).to(at::kHalf);
  numbers[7] = expected[7] = std::numeric_limits<float>::quiet_NaN();
  scale({numbers, half}, 3, 1);
  EXPECT_TRUE(at::allclose(numbers, expected, 0, 0, /*equal_nan=*/true));
  EXPECT_TRUE(at::equal(half, expected_half));
}

constexpr UpdateKernel kUpdateKernels[] = {UpdateKernel::kSgd,
                                           UpdateKernel::kSgdMomentum,
                                           UpdateKernel::kAdam,
                                           UpdateKernel::kAdamAmsgrad,
                                           UpdateKernel::kNadam,
                                           UpdateKernel::kRadam,
                                           UpdateKernel::kAdamax,
                                           UpdateKernel::kAdagrad,
                                           UpdateKernel::kRmsProp,
                                           UpdateKernel::kRmsPropMomentum,
                                           UpdateKernel::kRmsPropCentered,
                                           UpdateKernel::kRmsPropCenteredMomentum,
                                           UpdateKernel::kLion,
                                           UpdateKernel::kLambDirection,
                                           UpdateKernel::kLambStep,
                                           UpdateKernel::kScheduleFreeSgd,
                                           UpdateKernel::kScheduleFreeAdam};
constexpr double kScalars[kNumScalars] = {0.99, 0.1, -1, 0.05, 0.9, 0.1, 0.95, 0.05, 1e-3, 1.2, 0.7, 0.3};

// Parameter, gradient and states of an update kernel; the states are positive, as squares are.
struct Work {
  std::vector<at::Tensor> tensors;

  explicit Work(at::ScalarType dtype) {
    for (int64_t i = 0; i < 2 + kMaxStates; ++i) {
      const at::Tensor numbers = noise(kCount, i).to(dtype);
      tensors.push_back(i < 2 ? numbers : numbers.square());
    }
  }
  UpdateArguments arguments() const {
    UpdateArguments arguments;
    arguments.count = kCount;
    arguments.parameter = span_of(tensors[0]);
    arguments.gradient = span_of(tensors[1]);
    for (size_t k = 0; k < kMaxStates; ++k) arguments.states[k] = span_of(tensors[2 + k]);
    std::copy(std::begin(kScalars), std::end(kScalars), arguments.scalars);
    return arguments;
  }
};

TEST(KernelsUpdate, ForeachComputesTheSame) {
  for (const UpdateKernel kernel : kUpdateKernels) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const Work flat(dtype);
      const Work listed(dtype);
      update(kernel, {flat.arguments()});
      ForeachUpdate lists;
      lists.parameters = {listed.tensors[0]};
      lists.gradients = {listed.tensors[1]};
      for (size_t k = 0; k < kMaxStates; ++k) lists.states[k] = {listed.tensors[2 + k]};
      lists.add_scalars(kScalars);
      update(kernel, lists);
      for (size_t i = 0; i < flat.tensors.size(); ++i)
        EXPECT_TRUE(at::allclose(flat.tensors[i], listed.tensors[i], 2e-5, 1e-5))
            << "kernel " << static_cast<int>(kernel) << ", tensor " << i;
    }
  }
}

TEST(KernelsUpdate, InstructionSetsComputeTheSameBits) {
  std::vector<Kernels> sets = {baseline::kernels()};
#ifdef __x86_64__
  if (fastest_instruction_set() >= InstructionSet::kAvx2) sets.push_back(avx2::kernels());
  if (fastest_instruction_set() >= InstructionSet::kAvx512) sets.push_back(avx512::kernels());
#endif
  for (const UpdateKernel kernel : kUpdateKernels) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const Work expected(dtype);
      const UpdateArguments arguments = expected.arguments();
      sets[0].find_update(kernel, arguments.parameter.format)(arguments, 0, num_blocks(kCount));
      for (const Kernels& kernels : sets) {
        const Work found(dtype);
        const UpdateArguments own = found.arguments();
        kernels.find_update(kernel, own.parameter.format)(own, 0, num_blocks(kCount));
        for (size_t i = 0; i < found.tensors.size(); ++i)
          EXPECT_TRUE(at::equal(found.tensors[i], expected.tensors[i])) << "kernel " << static_cast<int>(kernel);
      }
    }
  }
}

TEST(KernelsUpdate, ManyTensorsAsOneByOne) {
  std::vector<Work> together, alone;
  std::vector<UpdateArguments> arguments;
  for (int i = 0; i < 70; ++i) {  // more blocks than one thread takes
    together.emplace_back(at::kFloat);
    alone.emplace_back(at::kFloat);
    arguments.push_back(together.back().arguments());
  }
  update(UpdateKernel::kAdam, arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    update(UpdateKernel::kAdam, {alone[i].arguments()});
    EXPECT_TRUE(at::equal(together[i].tensors[0], alone[i].tensors[0])) << i;
  }
}

}  // namespace kernels_test
}  // namespace accel::kernels
