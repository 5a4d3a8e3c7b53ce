// SPDX-License-Identifier: Apache-2.0
// Copies of loaded tensors into those of objects.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <optional>

#include "tensor/loading.hpp"

namespace accel::tensor {
namespace loading_test {

constexpr int64_t kMany =
    (int64_t{5} << 20) + 3;  // numbers: more than one chunk of a file, and not a multiple of anything

at::Tensor numbers(at::ScalarType dtype) { return at::arange(kMany, at::kFloat).remainder(1000).to(dtype); }

class Loading : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) scope_.emplace();
  }
  std::optional<LoadingScope> scope_;
};

TEST_P(Loading, CopiesEveryElementWhateverTheLayout) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const at::Tensor whole = numbers(dtype);
    // Odd sizes and addresses, and layouts whose bytes are not in the order of the elements.
    const at::Tensor odd = whole.slice(0, 1, kMany - 1), rows = whole.slice(0, 0, 4096 * 1024).view({4096, 1024});
    for (const at::Tensor& from : {whole, odd, rows, rows.t()}) {
      for (const at::ScalarType target : {dtype, at::kFloat}) {
        const at::Tensor memory = at::zeros({from.numel() + 1}, target), to = memory.slice(0, 1).view(from.sizes());
        const auto version = to._version();
        copy_loaded({{to, from}});
        EXPECT_TRUE(at::equal(to, from.to(target))) << dtype << " to " << target << " of " << from.sizes();
        EXPECT_EQ(memory[0].item<float>(), 0);
        EXPECT_GT(to._version(), version);
      }
      const at::Tensor across = at::zeros(from.sizes(), dtype).t().contiguous().t();
      copy_loaded({{across, from}});
      EXPECT_TRUE(at::equal(across, from));
    }
  }
}

TEST_P(Loading, KeepsConjugatesAndNegatives) {
  const at::Tensor from = numbers(at::kComplexFloat).slice(0, 0, 1 << 20) * c10::complex<float>(1, 2);
  for (const at::Tensor& view : {from.conj(), from._neg_view()}) {
    const at::Tensor to = at::zeros_like(from);
    copy_loaded({{to, view}});
    EXPECT_TRUE(at::equal(to, view.resolve_conj().resolve_neg()));
    copy_loaded({{to.conj(), from}});
    EXPECT_TRUE(at::equal(to, from.conj().resolve_conj()));
  }
}

TEST_P(Loading, OfATensorWithTwoNamesTheLastOneCounts) {
  const at::Tensor first = numbers(at::kFloat), last = first + 1, to = at::zeros_like(first);
  copy_loaded({{to, first}, {at::zeros({3}), at::zeros({3})}, {to, last}});
  EXPECT_TRUE(at::equal(to, last));
}

INSTANTIATE_TEST_SUITE_P(Loading, Loading, ::testing::Bool());

}  // namespace loading_test
}  // namespace accel::tensor
