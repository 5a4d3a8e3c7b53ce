// SPDX-License-Identifier: Apache-2.0
// Halves in float32 arithmetic: as exact as LibTorch's kernels of halves and rounded once, for every form and layout,
// in our calls only. All is emulated here, whatever the processor has.
#include "kernels/matmul/emulated_matmul.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/state/state.hpp"
#include "kernels/attention/attention_dispatch.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/matmul/autotune_cache.hpp"
#include "kernels/matmul/convolution_dispatch.hpp"
#include "kernels/matmul/matmul_dispatch.hpp"
#include "kernels/matmul/skinny_matmul.hpp"
#include "machine/processors.hpp"
#include "state/state.hpp"

namespace accel::kernels {
namespace {

constexpr ComputePolicy kEmulated{true, false};
constexpr at::ScalarType kHalves[] = {at::kBFloat16, at::kHalf};

// A matrix, or a batch of them, row-major, transposed, a part of a larger one, or one that is repeated.
at::Tensor drawn(std::mt19937& random, std::vector<int64_t> shape, at::ScalarType dtype) {
  const size_t rows = shape.size() - 2;
  switch (random() % 5) {
    case 0: {
      std::swap(shape[rows], shape[rows + 1]);
      return at::randn(shape).to(dtype).transpose(-1, -2);
    }
    case 1: {
      shape[rows + 1] += 3;
      return at::randn(shape).to(dtype).narrow(-1, 1, shape[rows + 1] - 3);
    }
    case 2: {
      std::vector<int64_t> one = shape;
      one[0] = 1;
      return at::randn(one).to(dtype).expand(shape);
    }
    default:
      return at::randn(shape).to(dtype);
  }
}

at::Tensor exact(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

class EmulatedMatmul : public testing::Test {
 protected:
  void SetUp() override {
    install_matmul_dispatch(MatmulChoice::kMeasured);
    install_attention_dispatch();
    install_convolution_dispatch();
    choose_emulation(EmulationChoice::kAll);
    at::manual_seed(1);
  }
  void TearDown() override { choose_emulation(EmulationChoice::kMeasured); }
};

// What one rounding of the exact result can be off, and a little where the sums' own error decides between neighbours.
void expect_rounded_once(const at::Tensor& found, const at::Tensor& expected, at::ScalarType dtype) {
  ASSERT_EQ(found.scalar_type(), dtype);
  ASSERT_EQ(found.sizes(), expected.sizes());
  if (found.numel() == 0) return;
  const double half_a_step = dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
  const double sums = 1e-5 * expected.abs().max().item<double>();
  EXPECT_TRUE(at::allclose(exact(found), expected, 1.01 * half_a_step, sums)) << found.sizes() << " " << dtype;
}

// A generation computes a token as one row, or with those of other sequences, and gets the same scores.
TEST_F(EmulatedMatmul, FewRowsAreRoundedOnceAndDoNotDependOnEachOther) {
  constexpr int64_t kSizes[][2] = {{1024, 256}, {131, 1000}, {64, 2049}};  // inner, columns
  const ComputeScope scope(kEmulated);
  for (const at::ScalarType dtype : kHalves) {
    for (const auto& [inner, columns] : kSizes) {
      const at::Tensor first = at::randn({33, inner + 5}).to(dtype).narrow(1, 2, inner);
      const at::Tensor second = at::randn({columns, inner + 3}).to(dtype).narrow(1, 1, inner).t();
      const at::Tensor bias = at::randn({columns}).to(dtype);
      const at::Tensor expected = at::mm(exact(first), exact(second));
      for (const int64_t rows : {1, 2, 3, 5, 8, 15, 32, 33}) {
        const at::Tensor few = first.narrow(0, 33 - rows, rows), of_few = expected.narrow(0, 33 - rows, rows);
        const at::Tensor found = at::mm(few, second);
        expect_rounded_once(found, of_few, dtype);
        expect_rounded_once(at::addmm(bias, few, second), of_few + exact(bias), dtype);
        expect_rounded_once(at::addmm(bias, few, second, 0.5, 2), 2 * of_few + 0.5 * exact(bias), dtype);
        if (!is_skinny(few, second)) continue;
        EXPECT_TRUE(at::mm(few.slice(0, rows - 1), second).equal(found.slice(0, rows - 1))) << rows << dtype;
      }
    }
  }
}

// Memory is what they wait for, so that instructions for halves bring nothing.
TEST_F(EmulatedMatmul, FewRowsAreReadOnceAlsoWhereTheProcessorMultipliesHalves) {
  choose_emulation(EmulationChoice::kMeasured);
  const ComputeScope scope(kEmulated);
  const at::Tensor first = at::randn({4, 1024}), second = at::randn({512, 1024});
  for (const at::ScalarType dtype : kHalves) {
    for (const int64_t rows : {1, 4}) {
      const at::Tensor few = first.narrow(0, 0, rows).to(dtype), matrix = second.to(dtype).t();
      if (!is_skinny(few, matrix)) GTEST_SKIP() << "this processor has no kernel for them";
      const at::Tensor expected = at::empty({rows, 512}, dtype);
      skinny_matmul(few, matrix, expected, {});
      EXPECT_TRUE(at::mm(few, matrix).equal(expected)) << rows << dtype;
    }
  }
}

TEST_F(EmulatedMatmul, FewRowsKeepLibTorchsKernelsOutsideOfOurCalls) {
  const at::Tensor first = at::randn({1, 512}).to(at::kBFloat16), second = at::randn({512, 512}).to(at::kBFloat16).t();
  const at::Tensor normal = at::mm(first, second);
  choose_emulation(EmulationChoice::kNone);
  const ComputeScope scope(kEmulated);
  EXPECT_TRUE(at::mm(first, second).equal(normal));
}

TEST_F(EmulatedMatmul, AreRoundedOnceForRandomShapesAndLayouts) {
  std::mt19937 random(1);
  constexpr int64_t kSizes[] = {27, 32, 64, 100, 257};
  constexpr double kScales[] = {0, 1, 0.5, -2};
  const auto size = [&] { return kSizes[random() % 5]; };
  const ComputeScope scope(kEmulated);
  for (int round = 0; round < 60; ++round) {
    for (const at::ScalarType dtype : kHalves) {
      const int64_t m = size(), k = size(), n = size(), batch = 1 + random() % 4;
      const double beta = kScales[random() % 4], alpha = kScales[random() % 4];
      const std::vector<int64_t> shapes[] = {{m, n}, {n}, {m, 1}, {1, n}};
      const at::Tensor first = drawn(random, {m, k}, dtype), second = drawn(random, {k, n}, dtype);
      const at::Tensor firsts = drawn(random, {batch, m, k}, dtype), seconds = drawn(random, {batch, k, n}, dtype);
      const at::Tensor added = at::randn(shapes[random() % 4]).to(dtype), addeds = at::randn({batch, m, n}).to(dtype);
      const at::Tensor product = at::mm(exact(first), exact(second));
      const at::Tensor products = at::bmm(exact(firsts), exact(seconds));
      const at::Tensor sum = at::addmm(exact(added), exact(first), exact(second), beta, alpha);
      const at::Tensor sums = at::baddbmm(exact(addeds), exact(firsts), exact(seconds), beta, alpha);

      expect_rounded_once(at::mm(first, second), product, dtype);
      expect_rounded_once(at::bmm(firsts, seconds), products, dtype);
      expect_rounded_once(at::addmm(added, first, second, beta, alpha), sum, dtype);
      expect_rounded_once(at::baddbmm(addeds, firsts, seconds, beta, alpha), sums, dtype);
      at::Tensor given = at::empty({n, m}, dtype).t(), givens = at::empty({batch, m, n}, dtype);
      expect_rounded_once(at::mm_out(given, first, second), product, dtype);
      expect_rounded_once(at::bmm_out(givens, firsts, seconds), products, dtype);
      expect_rounded_once(at::addmm_out(given, added, first, second, beta, alpha), sum, dtype);
      expect_rounded_once(at::baddbmm_out(givens, addeds, firsts, seconds, beta, alpha), sums, dtype);
      at::Tensor in_place = added.expand({m, n}).clone(at::MemoryFormat::Contiguous), in_places = addeds.clone();
      expect_rounded_once(in_place.addmm_(first, second, beta, alpha), sum, dtype);
      expect_rounded_once(in_places.baddbmm_(firsts, seconds, beta, alpha), sums, dtype);
    }
  }
}

TEST_F(EmulatedMatmul, BothFactorsMayBeTheResult) {
  const at::Tensor square = at::randn({128, 128}).to(at::kBFloat16);
  const at::Tensor expected = at::addmm(exact(square), exact(square), exact(square));
  const ComputeScope scope(kEmulated);
  at::Tensor in_place = square.clone();
  expect_rounded_once(in_place.addmm_(in_place, in_place), expected, at::kBFloat16);
}

TEST_F(EmulatedMatmul, CarryNanAndInfinity) {
  at::Tensor first = at::ones({128, 128}, at::kBFloat16), second = at::ones({128, 128}, at::kBFloat16);
  first[3][5] = std::numeric_limits<float>::quiet_NaN();
  second[7][9] = std::numeric_limits<float>::infinity();
  first[20][7] = 0;  // times infinity
  const at::Tensor added = at::full({128, 128}, std::numeric_limits<double>::quiet_NaN(), at::kBFloat16);
  const at::Tensor normal = at::mm(first, second);
  const ComputeScope scope(kEmulated);
  EXPECT_TRUE(at::allclose(at::mm(first, second), normal, 0, 0, /*equal_nan=*/true));
  EXPECT_TRUE(at::allclose(at::addmm(added, first, second, /*beta=*/0), normal, 0, 0, true));
  EXPECT_TRUE(at::addmm(added, first, second).isnan().all().item<bool>());
}

TEST_F(EmulatedMatmul, WhatOverflowsFloat16IsInfinite) {
  const at::Tensor large = at::full({64, 64}, 200.0, at::kHalf);
  const ComputeScope scope(kEmulated);
  EXPECT_TRUE(at::mm(large, large).isinf().all().item<bool>());
  EXPECT_TRUE(at::mm(large, at::full({64, 64}, 0.01, at::kHalf)).isfinite().all().item<bool>());
}

TEST_F(EmulatedMatmul, WrongArgumentsHaveTheErrorsOfTheDefault) {
  const at::Tensor first = at::randn({128, 128}).to(at::kBFloat16);
  const ComputeScope scope(kEmulated);
  EXPECT_THROW(at::mm(first, first.narrow(0, 0, 127)), c10::Error);
  EXPECT_THROW(at::mm(first, first.to(at::kHalf)), c10::Error);
  EXPECT_THROW(at::addmm(at::randn({5}).to(at::kBFloat16), first, first), c10::Error);
  EXPECT_THROW(at::bmm(first, first), c10::Error);
}

TEST_F(EmulatedMatmul, EqualBitsFromRunToRun) {
  const at::Tensor first = at::randn({300, 200}).to(at::kBFloat16), second = at::randn({200, 100}).to(at::kBFloat16);
  const ComputeScope scope(kEmulated);
  const at::Tensor result = at::mm(first, second);
  for (int run = 0; run < 5; ++run) EXPECT_TRUE(at::mm(first, second).equal(result));
}

// Sums in float32 and sums in blocks of bfloat16 products round differently somewhere in a product this large.
TEST_F(EmulatedMatmul, ActInsideOurCallsOnly) {
  const at::Tensor first = at::randn({512, 2048}).to(at::kBFloat16), second = at::randn({2048, 512}).to(at::kBFloat16);
  const at::Tensor float_product = at::mm(first.to(at::kFloat), second.to(at::kFloat)).to(at::kBFloat16);
  const at::Tensor normal = at::mm(first, second);
  if (normal.equal(float_product)) GTEST_SKIP() << "both ways have the same bits on this processor";
  EXPECT_TRUE(at::mm(first, second).equal(normal)) << "outside of a call";
  const ComputeScope scope(kEmulated);
  EXPECT_FALSE(at::mm(first, second).equal(normal));
  {
    const ComputeScope off(ComputePolicy{});
    EXPECT_TRUE(at::mm(first, second).equal(normal)) << "cpu_kernels default";
  }
  choose_emulation(EmulationChoice::kNone);
  EXPECT_TRUE(at::mm(first, second).equal(normal));
}

// The error against float64 is at most that of LibTorch's kernels of the half dtype, with room for chance.
void expect_as_exact(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& normal,
                     const std::vector<at::Tensor>& expected) {
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].sizes(), normal[i].sizes());
    ASSERT_EQ(found[i].scalar_type(), normal[i].scalar_type());
    EXPECT_EQ(found[i].strides(), normal[i].strides());
    const auto error = [&](const at::Tensor& of) { return exact(of).sub(expected[i]).square().mean().item<double>(); };
    EXPECT_LE(error(found[i]), 1.1 * error(normal[i]) + 1e-7) << "of tensor " << i;
  }
}

struct Layer {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> (*forward)(const std::vector<at::Tensor>& inputs);

  // The output and the gradients of all inputs.
  std::vector<at::Tensor> run(at::ScalarType dtype) const {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.to(dtype).detach().requires_grad_());
    std::vector<at::Tensor> all = forward(leaves);
    at::manual_seed(9);
    const at::Tensor seed = at::randn(all[0].sizes()).to(at::kBFloat16).to(dtype);
    for (at::Tensor& gradient : torch::autograd::grad({all[0]}, leaves, {seed})) all.push_back(std::move(gradient));
    all[0] = all[0].detach();
    return all;
  }
};

void expect_exact_layer(const Layer& layer) {
  const auto expected = layer.run(at::kDouble);
  for (const at::ScalarType dtype : kHalves) {
    const auto normal = layer.run(dtype);
    const ComputeScope scope(kEmulated);
    expect_as_exact(layer.run(dtype), normal, expected);
  }
}

at::Tensor numbers(at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16).to(at::kHalf).to(at::kFloat); }

TEST_F(EmulatedMatmul, LinearLayersAndTheirGradientsAreAsExact) {
  expect_exact_layer({{numbers({4, 60, 96}), numbers({128, 96}), numbers({128})}, [](const auto& inputs) {
                        return std::vector<at::Tensor>{at::linear(inputs[0], inputs[1], inputs[2])};
                      }});
}

TEST_F(EmulatedMatmul, ConvolutionsAndTheirGradientsAreAsExact) {
  expect_exact_layer({{numbers({2, 8, 20, 20}), numbers({16, 8, 3, 3}), numbers({16})}, [](const auto& inputs) {
                        return std::vector<at::Tensor>{
                            at::convolution(inputs[0], inputs[1], inputs[2], {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1)};
                      }});
  // Groups, steps, no bias, one dimension, transposed.
  expect_exact_layer({{numbers({2, 8, 40}), numbers({8, 4, 5})}, [](const auto& inputs) {
                        return std::vector<at::Tensor>{
                            at::convolution(inputs[0], inputs[1], {}, {2}, {2}, {1}, false, {0}, 2)};
                      }});
  expect_exact_layer({{numbers({2, 8, 10, 10}), numbers({8, 6, 3, 3}), numbers({6})}, [](const auto& inputs) {
                        return std::vector<at::Tensor>{
                            at::convolution(inputs[0], inputs[1], inputs[2], {2, 2}, {1, 1}, {1, 1}, true, {1, 1}, 1)};
                      }});
}

TEST_F(EmulatedMatmul, AttentionOfAnyLengthIsAsExact) {
  for (const int64_t length : {1, 33, 128, 513, 700}) {
    for (const bool is_causal : {false, true}) {
      const auto part = [&] { return numbers({2, length, 3, 32}).transpose(1, 2); };
      const std::vector<at::Tensor> inputs = {part(), part(), part()};
      if (is_causal)
        expect_exact_layer({inputs, [](const auto& of) {
                              return std::vector<at::Tensor>{
                                  at::scaled_dot_product_attention(of[0], of[1], of[2], {}, 0.0, true)};
                            }});
      else
        expect_exact_layer({inputs, [](const auto& of) {
                              const at::Tensor mask = at::ones({of[0].size(2), of[0].size(2)}, at::kBool).tril(3);
                              return std::vector<at::Tensor>{
                                  at::scaled_dot_product_attention(of[0], of[1], of[2], mask)};
                            }});
    }
  }
}

TEST_F(EmulatedMatmul, SumsOfAttentionStayInFloat32) {
  const at::Tensor query = numbers({1, 2, 600, 32}).to(at::kBFloat16);
  const auto expected = at::_scaled_dot_product_flash_attention_for_cpu(exact(query), exact(query), exact(query));
  const ComputeScope scope(kEmulated);
  const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(query, query, query);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_EQ(sums.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(exact(sums), exact(std::get<1>(expected)), 1e-4, 1e-4));
}

TEST_F(EmulatedMatmul, AreMeasured) {
  choose_emulation(EmulationChoice::kMeasured);
  const ComputeScope scope(kEmulated);
  const at::Tensor first = at::randn({64, 256}).to(at::kBFloat16), second = at::randn({256, 256}).to(at::kBFloat16);
  expect_rounded_once(at::mm(first, second), at::mm(exact(first), exact(second)), at::kBFloat16);
  const std::string said = describe_emulation(at::kBFloat16);
  EXPECT_EQ(said.find(is_emulated(at::kBFloat16) ? "float32 with rounded values; " : "LibTorch's kernels, which are"),
            0)
      << said;
  const double speed = emulated_speed();
  EXPECT_GT(speed, 0.05);
  EXPECT_LE(speed, 1);
}

// What the environment says, put back at the end.
class LimitedInstructions {
 public:
  explicit LimitedInstructions(const char* limit) {
    if (const char* const former = std::getenv(kName)) former_ = former;
    setenv(kName, limit, 1);
  }
  ~LimitedInstructions() { former_.empty() ? unsetenv(kName) : setenv(kName, former_.c_str(), 1); }

 private:
  static constexpr const char* kName = "ONEDNN_MAX_CPU_ISA";
  std::string former_;
};

TEST(EmulationOfProcessors, LimitsOfOnednnHideInstructions) {
  for (const char* limit : {"AVX2", "avx512_core", "AVX512_CORE_VNNI"}) {
    const LimitedInstructions limited(limit);
    EXPECT_EQ(accel::bfloat16_support(), Bfloat16Support::kNone) << limit;
    EXPECT_EQ(bfloat16_instructions(), "") << limit;
  }
  const LimitedInstructions limited("AVX512_CORE_BF16");
  EXPECT_NE(accel::bfloat16_support(), Bfloat16Support::kTiles);
}

TEST(EmulationOfProcessors, LimitsMakeOtherTables) {
  const auto path = [](const char* limit) {
    const LimitedInstructions limited(limit);
    return AutotuneCache::find("2.13.0", 1, "bfloat16").value().path();
  };
  EXPECT_NE(path("AVX2"), path("AVX512_CORE_VNNI"));
  EXPECT_NE(path("AVX2"), AutotuneCache::find("2.13.0", 1, "float16").value().path());
}

TEST(EmulationOfProcessors, AStateSaysWhatItCosts) {
  const LimitedInstructions limited("AVX512_CORE_VNNI");
  std::string logged;
  set_log_callback([](int32_t, const char* line, void* all) { *static_cast<std::string*>(all) += line; }, &logged,
                   nullptr);
  StateSettings options;
  options.cpu = true;
  options.mixed_precision = Precision::kBf16;
  const std::string described = state::State(options).describe();
  const std::string first = std::exchange(logged, "");
  options.mixed_precision = Precision::kNo;
  const std::string without = state::State(options).describe();
  set_log_callback(nullptr, nullptr, nullptr);
  set_default_policy({});
  EXPECT_EQ(first.find("mixed_precision is bf16, which is emulated on this processor"), 0) << first;
  EXPECT_NE(first.find(" % of the speed of float32; mixed_precision 'no' is faster"), std::string::npos) << first;
  EXPECT_NE(described.find("bf16 is emulated = products run in float32 with values rounded to bf16, at "),
            std::string::npos)
      << described;
  EXPECT_EQ(logged, "");
  EXPECT_EQ(without.find("bf16 is emulated"), std::string::npos) << without;
}

}  // namespace
}  // namespace accel::kernels
