#include "parallel/context/attention_blocks.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <utility>
#include <vector>

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
  const int64_t rank = problem.group->rank(), length = problem.query.size(kPositions);
  const Share all{0, length};
  if (!problem.is_causal) return SeenBlock{all, all};
  if (owner == rank) return SeenBlock{all, all, true};
  if (problem.order == SequenceOrder::kContiguous)
    return owner < rank ? std::optional(SeenBlock{all, all}) : std::nullopt;
  const int64_t chunk = length / 2;
  return owner < rank ? SeenBlock{all, {0, chunk}} : SeenBlock{{chunk, chunk}, all};
}

at::ScalarType exact_dtype(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
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

// Keys and values as one block.
at::Tensor block_of(const BlockwiseAttention& problem) { return at::stack({problem.key, problem.value}); }

template <typename Visit>
void for_each_block(const BlockwiseAttention& problem, BlockExchange& exchange, const Visit& visit) {
  const int64_t ranks = problem.group->size();
  for (int64_t step = 0; step < ranks; step++)
    visit(step, exchange.block(step), seen_block(problem, (problem.group->rank() + ranks - step) % ranks));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> BlockwiseAttention::forward() const {
  const auto exchange = exchange_blocks(transport, block_of(*this), group);
  at::Tensor out, logsumexp;
  for_each_block(*this, *exchange, [&](int64_t step, const at::Tensor& block, const std::optional<SeenBlock>& seen) {
    if (!seen) return;
    auto [partial, partial_logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        seen->of_queries(query), for_each_query_head(seen->of_keys(block.select(0, 0)), query),
        for_each_query_head(seen->of_keys(block.select(0, 1)), query), 0.0, seen->is_diagonal, std::nullopt, scale);
    if (step == 0) {
      out = partial.to(exact_dtype(query));
      logsumexp = std::move(partial_logsumexp);
    } else {
      merge(seen->of_queries(out), seen->of_queries(logsumexp), partial, partial_logsumexp);
    }
  });
  return {out.to(query.scalar_type()), logsumexp};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> BlockwiseAttention::backward(const at::Tensor& out_gradient,
                                                                            const at::Tensor& out,
                                                                            const at::Tensor& logsumexp) const {
  const auto exchange = exchange_blocks(transport, block_of(*this), group);
  const at::ScalarType dtype = exact_dtype(query);
  const at::Tensor of_query = at::zeros_like(query, query.options().dtype(dtype));
  for_each_block(*this, *exchange, [&](int64_t step, const at::Tensor& block, const std::optional<SeenBlock>& seen) {
    const at::Tensor of_block = at::zeros(block.sizes(), block.options().dtype(dtype));
    if (seen) {
      const auto [of_queries, of_keys, of_values] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          seen->of_queries(out_gradient), seen->of_queries(query),
          for_each_query_head(seen->of_keys(block.select(0, 0)), query),
          for_each_query_head(seen->of_keys(block.select(0, 1)), query), seen->of_queries(out),
          seen->of_queries(logsumexp), 0.0, seen->is_diagonal, std::nullopt, scale);
      seen->of_queries(of_query).add_(of_queries);
      seen->of_keys(of_block.select(0, 0)).copy_(summed_to_heads(of_keys, key.size(1)));
      seen->of_keys(of_block.select(0, 1)).copy_(summed_to_heads(of_values, key.size(1)));
    }
    exchange->add_gradient(step, of_block);
  });
  const at::Tensor of_keys_and_values = exchange->own_gradient().to(key.scalar_type());
  return {of_query.to(query.scalar_type()), of_keys_and_values.select(0, 0), of_keys_and_values.select(0, 1)};
}

}  // namespace accel::parallel
