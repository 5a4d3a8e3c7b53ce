// SPDX-License-Identifier: Apache-2.0
#include "parallel/context/attention_blocks.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <utility>
#include <vector>

#include "parallel/context/block_attention.hpp"

namespace accel::parallel {
namespace {

constexpr int64_t kPositions = 2;  // the dimension

// The part of a block that is seen, which queries see it, and whether the two have the same positions under a causal
// mask.
struct SeenBlock {
  Share queries, keys;
  bool is_diagonal = false;

  at::Tensor of_queries(const at::Tensor& tensor) const {
    return tensor.narrow(kPositions, queries.begin, queries.size);
  }
  at::Tensor of_keys(const at::Tensor& tensor) const { return tensor.narrow(kPositions, keys.begin, keys.size); }
};

// Nothing if each query is before each key. Between ranks no position is masked, only whole chunks are left out.
std::optional<SeenBlock> seen_block(const BlockwiseAttention& problem, int64_t owner) {
  const int64_t rank = problem.route.group->rank(), length = problem.query.size(kPositions);
  const Share all{0, length};
  if (!problem.is_causal) return SeenBlock{all, all};
  if (owner == rank) return SeenBlock{all, all, true};
  if (problem.order == SequenceOrder::kContiguous)
    return owner < rank ? std::optional(SeenBlock{all, all}) : std::nullopt;
  const int64_t chunk = length / 2;
  return owner < rank ? SeenBlock{all, {0, chunk}} : SeenBlock{{chunk, chunk}, all};
}

// Some heads of keys with those of their queries, or some rows of the batch.
struct Portion {
  int64_t dim = 0;
  int64_t whole = 1;  // the size of this dimension in keys
  Share share;

  at::Tensor of(const at::Tensor& tensor) const {
    const int64_t for_each = tensor.size(dim) / whole;
    return tensor.narrow(dim, share.begin * for_each, share.size * for_each);
  }
};

Portion all_of(const BlockwiseAttention& problem) {
  const int64_t batch = problem.query.size(0);
  return {0, batch, {0, batch}};
}

// The problem in two portions, of which each has work for all threads; the second is empty if there are none.
std::pair<Portion, Portion> halves_of(const BlockwiseAttention& problem) {
  const at::Tensor keys = problem.keys_and_values.select(0, 0);
  const int64_t dim = keys.size(1) > 1 ? 1 : 0, whole = keys.size(dim), half = whole / 2;
  const int64_t heads_of_half = problem.query.size(0) * problem.query.size(1) * half / whole;
  const int64_t first = heads_of_half < at::get_num_threads() ? whole : whole - half;
  return {{dim, whole, {0, first}}, {dim, whole, {first, whole - first}}};
}

at::Tensor for_each_query_head(const at::Tensor& keys, const at::Tensor& query) {
  const int64_t group = query.size(1) / keys.size(1);
  if (group == 1) return keys;
  std::vector<int64_t> sizes = keys.sizes().vec();
  sizes.insert(sizes.begin() + 2, group);
  return keys.unsqueeze(2).expand(sizes).flatten(1, 2);
}

// The gradient of for_each_query_head().
at::Tensor summed_to_heads(const at::Tensor& gradient, int64_t heads) {
  const at::Tensor exact = gradient.to(exact_dtype(gradient));
  return gradient.size(1) == heads ? exact : exact.unflatten(1, {heads, gradient.size(1) / heads}).sum(2);
}

// out += weight * (partial - out), where the weight is the block's part of the sum of exponentials; without the
// exponentials themselves, which overflow.
void merge(const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& partial,
           const at::Tensor& partial_logsumexp) {
  out.lerp_(partial.to(out.scalar_type()), at::sigmoid(partial_logsumexp.sub(logsumexp)).unsqueeze(-1));
  logsumexp.sub_(at::log_sigmoid(logsumexp.sub(partial_logsumexp)));
}

template <typename Visit>
void for_each_block(const BlockwiseAttention& problem, BlockExchange& exchange, const Visit& visit) {
  const int64_t ranks = problem.route.group->size();
  for (int64_t step = 0; step < ranks; step++)
    visit(step, exchange.block(step), seen_block(problem, (problem.route.group->rank() + ranks - step) % ranks));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> BlockwiseAttention::forward() const {
  const auto exchange = exchange_blocks(route, keys_and_values, exact_dtype(query), /*compares=*/true);
  at::Tensor out, logsumexp;
  for_each_block(*this, *exchange, [&](int64_t step, const at::Tensor& block, const std::optional<SeenBlock>& seen) {
    if (!seen) return;
    auto [partial, partial_logsumexp] = BlockAttention{seen->is_diagonal, scale}.forward(
        seen->of_queries(query), for_each_query_head(seen->of_keys(block.select(0, 0)), query),
        for_each_query_head(seen->of_keys(block.select(0, 1)), query));
    if (step == 0) {
      out = partial.to(exact_dtype(query));
      logsumexp = std::move(partial_logsumexp);
    } else {
      merge(seen->of_queries(out), seen->of_queries(logsumexp), partial, partial_logsumexp);
    }
  });
  return {out.to(query.scalar_type()), logsumexp};
}

// Half of the own block is computed last, while the gradient of the block before goes home.
std::tuple<at::Tensor, at::Tensor, at::Tensor> BlockwiseAttention::backward(const at::Tensor& out_gradient,
                                                                            const at::Tensor& out,
                                                                            const at::Tensor& logsumexp) const {
  const at::ScalarType dtype = exact_dtype(query);
  const auto exchange = exchange_blocks(route, keys_and_values, dtype, /*compares=*/false);
  at::Tensor slices;  // the gradients, so that the projection's needs no copy
  if (is_of_one_projection)
    slices = at::empty({query.size(0), query.size(2), 3, query.size(1), query.size(3)}, query.options())
                 .permute({2, 0, 3, 1, 4});
  const bool is_in_place = slices.defined() && dtype == query.scalar_type();
  const at::Tensor of_query =
      is_in_place ? slices.select(0, 0).zero_() : at::zeros_like(query, query.options().dtype(dtype));
  const auto differentiate = [&](const at::Tensor& block, const SeenBlock& seen, const Portion& portion,
                                 const at::Tensor& of_block) {
    if (portion.share.size == 0) return;
    const auto queries = [&](const at::Tensor& tensor) { return seen.of_queries(portion.of(tensor)); };
    const auto keys = [&](const at::Tensor& tensor, int64_t which) {
      return seen.of_keys(portion.of(tensor.select(0, which)));
    };
    const at::Tensor seeing = queries(query);
    const auto [of_queries, of_keys, of_values] = BlockAttention{seen.is_diagonal, scale}.backward(
        queries(out_gradient), seeing, for_each_query_head(keys(block, 0), seeing),
        for_each_query_head(keys(block, 1), seeing), queries(out), queries(logsumexp));
    queries(of_query).add_(of_queries);
    const at::Tensor to_keys = keys(of_block, 0), to_values = keys(of_block, 1);
    to_keys.copy_(summed_to_heads(of_keys, to_keys.size(1)));
    to_values.copy_(summed_to_heads(of_values, to_values.size(1)));
  };
  const SeenBlock seen_of_own = *seen_block(*this, route.group->rank());
  const at::Tensor of_own = exchange->gradient_memory(0);
  const std::pair<Portion, Portion> halves = halves_of(*this);
  for_each_block(*this, *exchange, [&](int64_t step, const at::Tensor& block, const std::optional<SeenBlock>& seen) {
    if (step == 0) return differentiate(keys_and_values, seen_of_own, halves.first, of_own);
    const at::Tensor of_block = exchange->gradient_memory(step);
    if (!seen || seen->keys.size < of_block.size(1 + kPositions)) of_block.zero_();
    if (seen) differentiate(block, *seen, all_of(*this), of_block);
    exchange->add_gradient(step);
  });
  differentiate(keys_and_values, seen_of_own, halves.second, of_own);
  exchange->add_gradient(0);
  const at::Tensor exact = exchange->own_gradient();
  if (slices.defined()) {
    if (!is_in_place) slices.select(0, 0).copy_(of_query);
    slices.narrow(0, 1, 2).copy_(exact);
    return {slices.select(0, 0), slices.select(0, 1), slices.select(0, 2)};
  }
  const at::Tensor of_keys_and_values = exact.to(keys_and_values.scalar_type());
  return {of_query.to(query.scalar_type()), of_keys_and_values.select(0, 0), of_keys_and_values.select(0, 1)};
}

}  // namespace accel::parallel
