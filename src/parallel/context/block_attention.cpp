// SPDX-License-Identifier: Apache-2.0
#include "parallel/context/block_attention.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

namespace accel::parallel {
namespace {

constexpr int64_t kRows = 2;  // the dimension

// The scores of the queries from `begin` on.
at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, int64_t begin, const BlockAttention& attention) {
  at::Tensor scores = at::matmul(query, key.transpose(-2, -1)).mul_(attention.scale);
  if (!attention.is_causal) return scores;
  const at::TensorOptions positions = scores.options().dtype(at::kLong);
  const at::Tensor own = at::arange(begin, begin + query.size(kRows), positions).unsqueeze(1);
  const at::Tensor is_later = at::arange(key.size(kRows), positions).gt(own);
  return scores.masked_fill_(is_later, -std::numeric_limits<double>::infinity());
}

// How many queries are computed at a time.
int64_t block_rows(const at::Tensor& query, const at::Tensor& key) {
  constexpr int64_t kMostScores = int64_t{16} << 20;
  const int64_t scores_of_row = std::max<int64_t>(query.size(0) * query.size(1) * key.size(kRows), 1);
  return std::max<int64_t>(kMostScores / scores_of_row, 1);
}

template <typename Visit>
void for_rows(const at::Tensor& query, const at::Tensor& key, const Visit& visit) {
  const int64_t length = query.size(kRows), rows = block_rows(query, key);
  for (int64_t begin = 0; begin < length; begin += rows) visit(begin, std::min(rows, length - begin));
}

}  // namespace

at::ScalarType exact_dtype(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::tuple<at::Tensor, at::Tensor> BlockAttention::forward(const at::Tensor& query, const at::Tensor& key,
                                                           const at::Tensor& value) const {
  if (query.is_cpu())
    return at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal, std::nullopt, scale);
  const at::ScalarType dtype = exact_dtype(query);
  const at::Tensor keys = key.to(dtype), values = value.to(dtype);
  std::vector<at::Tensor> outs, sums;
  for_rows(query, key, [&](int64_t begin, int64_t rows) {
    const at::Tensor scores = scores_of(query.narrow(kRows, begin, rows).to(dtype), keys, begin, *this);
    sums.push_back(scores.logsumexp(-1));
    outs.push_back(at::matmul(scores.sub(sums.back().unsqueeze(-1)).exp_(), values));
  });
  return {at::cat(outs, kRows), at::cat(sums, kRows)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> BlockAttention::backward(const at::Tensor& out_gradient,
                                                                        const at::Tensor& query, const at::Tensor& key,
                                                                        const at::Tensor& value, const at::Tensor& out,
                                                                        const at::Tensor& logsumexp) const {
  if (query.is_cpu())
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(out_gradient, query, key, value, out, logsumexp,
                                                                    0.0, is_causal, std::nullopt, scale);
  const at::ScalarType dtype = exact_dtype(query);
  const at::Tensor keys = key.to(dtype), values = value.to(dtype);
  at::Tensor of_keys = at::zeros_like(keys), of_values = at::zeros_like(values);
  std::vector<at::Tensor> of_queries;
  for_rows(query, key, [&](int64_t begin, int64_t rows) {
    const auto some = [&](const at::Tensor& tensor) { return tensor.narrow(kRows, begin, rows).to(dtype); };
    const at::Tensor queries = some(query), gradient = some(out_gradient);
    const at::Tensor weights =
        scores_of(queries, keys, begin, *this).sub_(logsumexp.narrow(kRows, begin, rows).unsqueeze(-1)).exp_();
    of_values.add_(at::matmul(weights.transpose(-2, -1), gradient));
    const at::Tensor mean = gradient.mul(some(out)).sum(-1, /*keepdim=*/true);
    const at::Tensor of_scores = at::matmul(gradient, values.transpose(-2, -1)).sub_(mean).mul_(weights).mul_(scale);
    of_queries.push_back(at::matmul(of_scores, keys));
    of_keys.add_(at::matmul(of_scores.transpose(-2, -1), queries));
  });
  return {at::cat(of_queries, kRows), of_keys, of_values};
}

}  // namespace accel::parallel
