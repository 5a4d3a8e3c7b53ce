// SPDX-License-Identifier: Apache-2.0
#include "optim/rules/foreach_adafactor.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_rsqrt.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <cmath>

#include "kernels/update/tensor_lists.hpp"

namespace accel::optim {
namespace {

using Tensors = std::vector<at::Tensor>;
using Scalars = std::vector<at::Scalar>;

template <typename T>
void append(std::vector<T>& list, const std::vector<T>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

Tensors slice(const Tensors& list, size_t begin, size_t end) {
  return {list.begin() + static_cast<std::ptrdiff_t>(begin), list.begin() + static_cast<std::ptrdiff_t>(end)};
}

// Moves the second moments of rows and columns towards the mean squares of the gradients.
void accumulate_matrices(const ForeachAdafactor& lists) {
  Tensors rows, columns;
  Scalars widths, heights;
  kernels::for_each_shape(slice(lists.gradients, 0, lists.rows.size()), [&](size_t begin, size_t end) {
    const at::Tensor gradients = at::stack(slice(lists.gradients, begin, end));
    append(rows, at::linalg_vector_norm(gradients, 2, -1, /*keepdim=*/true).unbind(0));
    append(columns, at::linalg_vector_norm(gradients, 2, -2, /*keepdim=*/true).unbind(0));
    widths.resize(end, gradients.size(2));
    heights.resize(end, gradients.size(1));
  });
  append(rows, columns);
  append(widths, heights);
  Tensors moments = lists.rows;
  append(moments, lists.columns);
  at::_foreach_mul_(rows, rows);
  at::_foreach_div_(rows, widths);
  if (lists.numbers.defined()) {
    const at::Tensor shares = lists.numbers.narrow(0, 0, static_cast<int64_t>(lists.rows.size()));
    return at::_foreach_lerp_(moments, rows, kernels::spread_like(shares.repeat({2}), moments));
  }
  Scalars shares(lists.shares.begin(), lists.shares.begin() + static_cast<std::ptrdiff_t>(lists.rows.size()));
  append(shares, Scalars(shares));
  at::_foreach_lerp_(moments, rows, shares);
}

// The second moments of the elements of the matrices: of their row, times that of their column, over the mean.
Tensors moments_of_matrices(const ForeachAdafactor& lists) {
  Tensors sums = at::_foreach_norm(lists.rows, 1);
  Scalars heights;
  for (const at::Tensor& rows : lists.rows) heights.emplace_back(rows.size(0));
  at::_foreach_div_(sums, heights);
  const at::Tensor means = at::stack(sums).clamp_min_(lists.eps1);
  Tensors moments;
  kernels::for_each_shape(slice(lists.gradients, 0, lists.rows.size()), [&](size_t begin, size_t end) {
    const auto first = static_cast<int64_t>(begin), count = static_cast<int64_t>(end - begin);
    const at::Tensor rows =
        at::stack(slice(lists.rows, begin, end)).div_(means.narrow(0, first, count).view({-1, 1, 1}));
    append(moments, (rows * at::stack(slice(lists.columns, begin, end))).unbind(0));
  });
  return moments;
}

Tensors moments_of_vectors(const ForeachAdafactor& lists) {
  const Tensors gradients = slice(lists.gradients, lists.rows.size(), lists.gradients.size());
  Tensors squares = at::_foreach_mul(gradients, gradients);
  const size_t first = lists.rows.size(), count = lists.variances.size();
  if (lists.numbers.defined()) {
    const at::Tensor shares = lists.numbers.narrow(0, static_cast<int64_t>(first), static_cast<int64_t>(count));
    at::_foreach_lerp_(lists.variances, squares, kernels::spread_like(shares, lists.variances));
  } else {
    at::_foreach_lerp_(lists.variances, squares,
                       Scalars(lists.shares.begin() + static_cast<std::ptrdiff_t>(first), lists.shares.end()));
  }
  at::_foreach_copy_(squares, lists.variances);
  return squares;
}

}  // namespace

void update(const ForeachAdafactor& lists) {
  Tensors steps;
  if (!lists.rows.empty()) {
    accumulate_matrices(lists);
    steps = moments_of_matrices(lists);
  }
  if (!lists.variances.empty()) append(steps, moments_of_vectors(lists));
  at::_foreach_clamp_min_(steps, lists.eps1 * lists.eps1);
  at::_foreach_rsqrt_(steps);
  at::_foreach_mul_(steps, lists.gradients);

  Tensors measured = lists.parameters;
  append(measured, steps);
  Scalars roots;
  for (const at::Tensor& tensor : measured) roots.emplace_back(std::sqrt(static_cast<double>(tensor.numel())));
  const Tensors norms = at::_foreach_norm(measured, 2);
  at::_foreach_div_(norms, roots);
  const at::Tensor means = at::stack(norms);  // the root mean squares
  const auto count = static_cast<int64_t>(steps.size());
  const at::Tensor lengths = means.narrow(0, 0, count).clamp_min_(lists.eps2);
  const at::Tensor factors = lengths.div_(means.narrow(0, count, count).clamp_min_(lists.d));
  if (lists.numbers.defined()) {
    factors.mul_(lists.numbers.narrow(0, count, count));
    if (lists.decays) at::_foreach_mul_(lists.parameters, lists.numbers.select(0, 2 * count));
  } else {
    Scalars rates;
    for (const at::Scalar& rate : lists.rates) rates.emplace_back(rate.toDouble() * lists.d);
    at::_foreach_mul_(factors.unbind(0), rates);
    if (lists.decays) at::_foreach_mul_(lists.parameters, lists.keep);
  }
  at::_foreach_addcmul_(lists.parameters, steps, kernels::spread_like(factors, steps), -1);
}

}  // namespace accel::optim
