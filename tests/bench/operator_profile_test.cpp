// SPDX-License-Identifier: Apache-2.0
// What the workload roofline counts, on operators whose work is known.
#include "operator_profile.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>

namespace bench {
namespace {

using Totals = std::map<std::pair<std::string, c10::ScalarType>, OperatorTotals>;

template <typename Work>
Totals observe(Work work) {
  const OperatorProfile profile;
  work();
  return profile.totals();
}

OperatorTotals of(const Totals& totals, const std::string& name, c10::ScalarType dtype = at::kFloat) {
  const auto found = totals.find({name, dtype});
  EXPECT_NE(found, totals.end()) << name;
  return found == totals.end() ? OperatorTotals{} : found->second;
}

bool has(const Totals& totals, const std::string& name) {
  for (const auto& [key, of] : totals)
    if (key.first == name) return true;
  return false;
}

TEST(BenchProfile, CountsProducts) {
  const at::Tensor a = at::ones({2, 3}), b = at::ones({3, 5}), c = at::ones({5});
  const Totals totals = observe([&] {
    at::mm(a, b);
    at::addmm(c, a, b);
    at::bmm(a.unsqueeze(0), b.unsqueeze(0));
    at::baddbmm(c, a.expand({4, 2, 3}), b.expand({4, 3, 5}));
  });
  EXPECT_EQ(of(totals, "aten::mm").flops, 2 * 2 * 3 * 5);
  EXPECT_EQ(of(totals, "aten::mm").bytes, 4 * (6 + 15 + 10));
  EXPECT_EQ(of(totals, "aten::addmm").flops, 2 * 2 * 3 * 5);
  EXPECT_EQ(of(totals, "aten::bmm").flops, 2 * 2 * 3 * 5);
  EXPECT_EQ(of(totals, "aten::baddbmm").flops, 4 * 2 * 2 * 3 * 5);
  EXPECT_EQ(of(totals, "aten::baddbmm").bytes, 4 * (5 + 6 + 15 + 40)) << "what is expanded is read once";
}

TEST(BenchProfile, LinearIsTheProductThatItCalls) {
  const at::Tensor input = at::ones({2, 7, 3}), weight = at::ones({5, 3}), bias = at::ones({5});
  const Totals totals = observe([&] { at::linear(input, weight, bias); });
  EXPECT_EQ(of(totals, "aten::addmm").flops, 2 * 14 * 3 * 5);
  EXPECT_EQ(of(totals, "aten::linear").flops, 0);
  EXPECT_EQ(of(totals, "aten::linear").bytes, 0);
}

TEST(BenchProfile, WhatAKernelCallsBelongsToIt) {
  const at::Tensor input = at::ones({2, 3}).t();
  const Totals totals = observe([&] { input.contiguous(); });
  EXPECT_EQ(of(totals, "aten::clone").calls, 1);
  EXPECT_EQ(of(totals, "aten::clone").bytes, 2 * 4 * 6);
  EXPECT_FALSE(has(totals, "aten::copy_"));
}

TEST(BenchProfile, CountsWhatIsReadAndWritten) {
  at::Tensor x = at::ones({6}), y = at::ones({6});
  const Totals totals = observe([&] {
    x.add_(y);
    x.copy_(y);
    x.zero_();
    at::mul_out(x, y, y);
    at::_foreach_zero_({x, y});
    at::_foreach_add_({x, y}, 1);
    x.view({2, 3});
    at::empty({1000});
  });
  EXPECT_EQ(of(totals, "aten::add_").bytes, 4 * 18);
  EXPECT_EQ(of(totals, "aten::copy_").bytes, 4 * 12);
  EXPECT_EQ(of(totals, "aten::zero_").bytes, 4 * 6);
  EXPECT_EQ(of(totals, "aten::mul").bytes, 4 * 18);
  EXPECT_EQ(of(totals, "aten::_foreach_zero_").bytes, 4 * 12);
  EXPECT_EQ(of(totals, "aten::_foreach_add_").bytes, 2 * 4 * 12);
  EXPECT_EQ(of(totals, "aten::view").bytes, 0);
  EXPECT_EQ(of(totals, "aten::empty").bytes, 0);
}

TEST(BenchProfile, CountsAttentionForwardAndBackward) {
  for (const bool is_causal : {false, true}) {
    const at::Tensor query = at::randn({2, 3, 8, 4}).requires_grad_();
    const Totals totals = observe([&] {
      const at::Tensor mixed = at::scaled_dot_product_attention(query, query, query, {}, 0, is_causal);
      torch::autograd::backward({mixed.sum()}, {});
    });
    const double pairs = 2 * 3 * (is_causal ? 8 * 9 / 2 : 8 * 8);
    EXPECT_EQ(of(totals, "aten::_scaled_dot_product_flash_attention_for_cpu").flops, 2 * pairs * (4 + 4));
    EXPECT_EQ(of(totals, "aten::_scaled_dot_product_flash_attention_for_cpu_backward").flops, 2 * pairs * 5 * 4);
  }
}

TEST(BenchProfile, CountsConvolutionForwardAndBackward) {
  const at::Tensor input = at::randn({2, 3, 9, 8}).requires_grad_(), weight = at::randn({5, 3, 3, 2}).requires_grad_();
  at::Tensor result;
  const Totals totals = observe([&] {
    result = at::conv2d(input, weight, {}, {2, 1}, {1, 0}, {1, 2});
    torch::autograd::backward({result.sum()}, {});
  });
  const double flops = 2.0 * static_cast<double>(result.numel()) * 3 * 3 * 2;
  EXPECT_EQ(of(totals, "aten::convolution").flops, flops);
  EXPECT_EQ(of(totals, "aten::convolution_backward").flops, 2 * flops);

  const at::Tensor small = at::randn({2, 5, 4, 4}), wide = at::randn({5, 3, 2, 2});
  const Totals transposed = observe([&] { at::conv_transpose2d(small, wide, {}, 2); });
  EXPECT_EQ(of(transposed, "aten::convolution").flops, 2.0 * static_cast<double>(small.numel()) * 3 * 2 * 2);
}

TEST(BenchProfile, ProductsUnderAutocastHaveTheDtypeOfTheirFactors) {
  const at::Tensor a = at::ones({2, 3}), b = at::ones({3, 5}), c = at::ones({5});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const Totals totals = observe([&] { at::addmm(c, a, b); });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(of(totals, "aten::addmm", at::kBFloat16).flops, 2 * 2 * 3 * 5);
  EXPECT_FALSE(totals.count({"aten::addmm", at::kFloat}));
  EXPECT_EQ(of(totals, "aten::_to_copy", at::kBFloat16).calls, 3);
  EXPECT_EQ(of(totals, "autocast", at::kBFloat16).flops, 0);
}

TEST(BenchProfile, TimesAddUpToNoMoreThanPassed) {
  const at::Tensor weight = at::randn({64, 64}).requires_grad_();
  const auto begin = std::chrono::steady_clock::now();
  const OperatorProfile profile;
  for (int i = 0; i < 10; ++i) torch::autograd::backward({at::linear(at::randn({32, 64}), weight).relu().sum()}, {});
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  double sum = profile.observing();
  for (const auto& [key, totals] : profile.totals()) {
    EXPECT_GE(totals.seconds, 0) << key.first;
    sum += totals.seconds;
  }
  EXPECT_GT(sum, 0);
  EXPECT_LE(sum, passed);
}

TEST(BenchProfile, ObservesOnlyWhileItLives) {
  { const OperatorProfile profile; }
  const at::Tensor before = at::ones({2});
  const Totals totals = observe([] {});
  EXPECT_TRUE(totals.empty());
}

}  // namespace
}  // namespace bench
