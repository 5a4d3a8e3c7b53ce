// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/short_attention.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/attention/attention_layout.hpp"
#include "kernels/attention/attention_rows.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kMaxScores = int64_t{1} << 20;  // at a time: they stay in the L3 cache
constexpr int64_t kRowsPerThread = 64;

constexpr int64_t kMaxPositions = 512, kMaxWithTiles = 192;
constexpr int64_t kFewPositions = 32;  // whose matmuls cost little in any dtype

// The dtype of the matmuls whose sums are results: float32 where the processor has no instructions for the half dtype.
at::ScalarType matmul_dtype(const ShortAttention& problem) {
  const bool in_half = problem.query.scalar_type() == at::kBFloat16 && bfloat16_support() != Bfloat16Support::kNone &&
                       std::min(problem.query.size(2), problem.key.size(2)) >= kFewPositions;
  return in_half ? at::kBFloat16 : at::kFloat;
}

// The heads as batched matmuls need them: [batch * heads, positions, size], contiguous.
at::Tensor by_head(const at::Tensor& tensor, at::ScalarType dtype) {
  at::Tensor heads =
      at::empty(tensor.sizes(), tensor.options().dtype(dtype).memory_format(at::MemoryFormat::Contiguous));
  heads.copy_(tensor);
  return heads.flatten(0, 1);
}

at::Tensor in(at::ScalarType dtype, const at::Tensor& heads) {
  return heads.scalar_type() == dtype ? heads : heads.to(dtype);
}

// Memory for some heads at a time.
class Chunks {
 public:
  Chunks(const at::Tensor& query, const at::Tensor& key)
      : heads_(query.size(0)),
        size_(std::clamp<int64_t>(kMaxScores / std::max<int64_t>(1, query.size(1) * key.size(1)), 1, heads_)) {}
  at::Tensor scores(const at::Tensor& query, const at::Tensor& key, at::ScalarType dtype) const {
    return at::empty({size_, query.size(1), key.size(1)}, query.options().dtype(dtype));
  }
  // work(first head, number of heads)
  template <typename Work>
  void for_each(const Work& work) const {
    for (int64_t first = 0; first < heads_; first += size_) work(first, std::min(size_, heads_ - first));
  }

 private:
  int64_t heads_;
  int64_t size_;
};

at::Tensor part(const at::Tensor& heads, int64_t first, int64_t count) { return heads.narrow(0, first, count); }

void multiply(at::Tensor result, const at::Tensor& a, const at::Tensor& b) { at::bmm_out(result, a, b); }

AttentionRows rows_of(const ShortAttention& problem, const at::Tensor& scores) {
  AttentionRows rows;
  rows.scores = scores.mutable_data_ptr<float>();
  rows.queries = scores.size(1);
  rows.keys = rows.stride = scores.size(2);
  rows.is_causal = problem.is_causal;
  rows.scale = static_cast<float>(problem.scale);
  return rows;
}

}  // namespace

bool ShortAttention::is_faster(at::ScalarType dtype, int64_t positions) {
  const bool in_tiles = dtype == at::kBFloat16 && bfloat16_support() == Bfloat16Support::kTiles;
  return positions <= (in_tiles ? kMaxWithTiles : kMaxPositions);
}

std::tuple<at::Tensor, at::Tensor> ShortAttention::forward() const {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType dtype = matmul_dtype(*this);
  const at::Tensor queries = by_head(query, at::kFloat), keys = by_head(key, at::kFloat);
  const at::Tensor values = by_head(value, dtype);
  const Chunks chunks(queries, keys);
  const at::Tensor all_scores = chunks.scores(queries, keys, at::kFloat);
  const at::Tensor all_probabilities = dtype == at::kFloat ? all_scores : chunks.scores(queries, keys, dtype);
  const at::Tensor outputs = at::empty({queries.size(0), queries.size(1), values.size(2)}, values.options());
  const at::Tensor sums = at::empty({queries.size(0), queries.size(1)}, queries.options());
  const AttentionKernels kernels = ACCEL_FASTEST(attention_kernels)();
  chunks.for_each([&](int64_t first, int64_t count) {
    const at::Tensor scores = part(all_scores, 0, count), probabilities = part(all_probabilities, 0, count);
    multiply(scores, part(queries, first, count), part(keys, first, count).transpose(1, 2));
    AttentionRows rows = rows_of(*this, scores);
    rows.probabilities = span_of(probabilities);
    auto* const logsumexp = part(sums, first, count).mutable_data_ptr<float>();
    parallel_for(count * rows.queries, kRowsPerThread,
                 [&](int64_t begin, int64_t end) { kernels.normalize(rows, begin, end, logsumexp); });
    multiply(part(outputs, first, count), probabilities, part(values, first, count));
  });
  const at::Tensor out = with_heads_inside(query, query.sizes(), query.scalar_type());
  out.copy_(outputs.view(query.sizes()));
  const at::Tensor logsumexp = with_heads_inside(query, query.sizes().slice(0, 3), at::kFloat);
  logsumexp.copy_(sums.view(logsumexp.sizes()));
  return {out, logsumexp};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ShortAttention::backward(const at::Tensor& out_gradient,
                                                                        const at::Tensor& out,
                                                                        const at::Tensor& logsumexp) const {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType dtype = matmul_dtype(*this);
  const at::Tensor exact_queries = by_head(query, at::kFloat), exact_keys = by_head(key, at::kFloat);
  const at::Tensor exact_values = by_head(value, at::kFloat), exact_gradients = by_head(out_gradient, at::kFloat);
  const at::Tensor queries = in(dtype, exact_queries), keys = in(dtype, exact_keys);
  const at::Tensor out_gradients = in(dtype, exact_gradients);
  const at::Tensor sums = by_head(logsumexp, at::kFloat);
  const at::Tensor inner = exact_gradients.mul(by_head(out, at::kFloat)).sum(2);
  const Chunks chunks(queries, keys);
  const at::Tensor all_scores = chunks.scores(queries, keys, at::kFloat);
  const at::Tensor all_gradients = chunks.scores(queries, keys, at::kFloat);
  const at::Tensor all_probabilities = dtype == at::kFloat ? all_scores : chunks.scores(queries, keys, dtype);
  const at::Tensor all_score_gradients = dtype == at::kFloat ? all_gradients : chunks.scores(queries, keys, dtype);
  const at::Tensor of_queries = at::empty_like(queries), of_keys = at::empty_like(keys);
  const at::Tensor of_values = at::empty(exact_values.sizes(), queries.options());
  const AttentionKernels kernels = ACCEL_FASTEST(attention_kernels)();
  chunks.for_each([&](int64_t first, int64_t count) {
    const at::Tensor scores = part(all_scores, 0, count), gradients = part(all_gradients, 0, count);
    const at::Tensor probabilities = part(all_probabilities, 0, count);
    const at::Tensor score_gradients = part(all_score_gradients, 0, count);
    multiply(scores, part(exact_queries, first, count), part(exact_keys, first, count).transpose(1, 2));
    multiply(gradients, part(exact_gradients, first, count), part(exact_values, first, count).transpose(1, 2));
    AttentionRows rows = rows_of(*this, scores);
    rows.probabilities = span_of(probabilities);
    rows.score_gradients = span_of(score_gradients);
    const auto* const of_probabilities = gradients.const_data_ptr<float>();
    const auto* const own_sums = part(sums, first, count).const_data_ptr<float>();
    const auto* const own_inner = part(inner, first, count).const_data_ptr<float>();
    parallel_for(count * rows.queries, kRowsPerThread, [&](int64_t begin, int64_t end) {
      kernels.differentiate(rows, begin, end, own_sums, of_probabilities, own_inner);
    });
    multiply(part(of_values, first, count), probabilities.transpose(1, 2), part(out_gradients, first, count));
    multiply(part(of_queries, first, count), score_gradients, part(keys, first, count));
    multiply(part(of_keys, first, count), score_gradients.transpose(1, 2), part(queries, first, count));
  });
  const auto laid_out_as = [](const at::Tensor& like, const at::Tensor& heads) {
    return at::empty_like(like).copy_(heads.view(like.sizes()));
  };
  return {laid_out_as(query, of_queries), laid_out_as(key, of_keys), laid_out_as(value, of_values)};
}

}  // namespace accel::kernels
