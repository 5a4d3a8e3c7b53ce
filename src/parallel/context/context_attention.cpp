// SPDX-License-Identifier: Apache-2.0
#include "parallel/context/context_attention.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <cmath>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/cached_results.hpp"
#include "parallel/context/attention_blocks.hpp"
#include "parallel/context/head_exchange.hpp"
#include "tensor/autograd/autograd_node.hpp"
#include "tensor/autograd/saved_tensor_hooks.hpp"
#include "tensor/dtype.hpp"

namespace accel::parallel {
namespace {

using torch::autograd::variable_list;

void check_arguments(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool is_causal,
                     const ContextParallelism& split) {
  require(query.dim() == 4 && key.dim() == 4, Status::kShapeMismatch, "attention over a split sequence has queries ",
          query.sizes(), " and keys ", key.sizes(), "; expected [batch, heads, positions, size]");
  require(key.sizes() == value.sizes(), Status::kUnsupported, "attention over a split sequence has keys ", key.sizes(),
          " and values ", value.sizes(), "; expected the same shape");
  require(query.size(2) == key.size(2), Status::kUnsupported, "attention over a split sequence has ", query.size(2),
          " queries and ", key.size(2), " keys; expected as many, without a cache");
  require(query.size(0) == key.size(0) && query.size(3) == key.size(3) && key.size(1) > 0 &&
              query.size(1) % key.size(1) == 0 && query.numel() > 0,
          Status::kShapeMismatch, "attention over a split sequence has queries ", query.sizes(), " and keys ",
          key.sizes(), "; expected one batch and size, and heads of queries that are a multiple of those of keys");
  const at::ScalarType dtype = query.scalar_type();
  require(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf,
          Status::kTypeMismatch, "query is ", tensor::dtype_name(dtype),
          "; expected float32, float64, bfloat16 or float16");
  require(key.scalar_type() == dtype && value.scalar_type() == dtype, Status::kTypeMismatch, "query is ",
          tensor::dtype_name(dtype), ", key ", tensor::dtype_name(key.scalar_type()), " and value ",
          tensor::dtype_name(value.scalar_type()), "; expected one dtype");
  require(key.device() == query.device() && value.device() == query.device(), Status::kInvalidArgument,
          "attention over a split sequence has queries on ", query.device(), ", keys on ", key.device(),
          " and values on ", value.device(), "; expected one device");
  if (split.order == SequenceOrder::kContiguous) return;
  require(query.size(2) % 2 == 0, Status::kShapeMismatch, "this rank has ", query.size(2),
          " positions; expected an even number, for a chunk of the head and one of the tail");
  require(split.method != ContextMethod::kUlysses || !is_causal, Status::kInvalidArgument,
          "causal attention by the method ulysses has chunks of the head and the tail; expected contiguous parts");
}

class ContextAttentionBackward final : public torch::autograd::Node {
 public:
  using Node::Node;

  std::string name() const override { return "ContextParallelAttentionBackward"; }

  // A missing gradient is zeros here: other ranks have one, and wait.
  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    require(!at::GradMode::is_enabled(), Status::kUnsupported,
            "attention over a split sequence has no second derivative; expected a backward without create_graph");
    require(!saved.empty(), Status::kInvalidState,
            "attention over a split sequence was differentiated a second time; expected one backward for each call, or "
            "a retained graph");
    BlockwiseAttention again = problem;
    again.query = saved[0].get();
    again.keys_and_values = saved[1].get();
    const at::Tensor out = saved[2].get(), logsumexp = saved[3].get();
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [of_query, of_key, of_value] =
        again.backward(gradients[0].defined() ? gradients[0] : at::zeros_like(out), out, logsumexp);
    return {std::move(of_query), std::move(of_key), std::move(of_value)};
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    saved.clear();
  }

  BlockwiseAttention problem;                  // without tensors
  std::vector<tensor::SavedActivation> saved;  // query, keys and values, output, logsumexp
};

// Queries and keys are those of the call.
std::tuple<at::Tensor, at::Tensor> forward_of(const BlockwiseAttention& problem, const at::Tensor& query,
                                              const at::Tensor& key) {
  kernels::CachedResults* const results = kernels::CachedResults::current();
  if (results == nullptr) return problem.forward();
  const auto call = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&forward_of));
  return results->keep_or_take(kernels::add_to_call(kernels::add_to_call(call, query), key),
                               [&problem] { return problem.forward(); });
}

// Whether they are slices of one projection, as nn/layers/split_heads.hpp makes them.
bool are_of_one_projection(const at::Tensor& query, const at::Tensor& key) {
  const int64_t width = query.size(1) * query.size(3);
  return key.sizes() == query.sizes() && key.strides() == query.strides() && query.stride(3) == 1 &&
         query.stride(2) == 3 * width && query.stride(1) == query.size(3);
}

at::Tensor attention_by_blocks(BlockwiseAttention problem, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value) {
  const bool differentiable =
      at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  at::Tensor out, logsumexp;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    problem.query = query.contiguous();  // not a view: what is saved would keep the keys and values a second time
    std::vector<int64_t> sizes = key.sizes().vec();
    sizes.insert(sizes.begin(), 2);
    problem.keys_and_values = block_memory(problem.route, sizes, key.options());
    problem.keys_and_values.select(0, 0).copy_(key);
    problem.keys_and_values.select(0, 1).copy_(value);
    problem.is_of_one_projection = are_of_one_projection(query, key);
    std::tie(out, logsumexp) = forward_of(problem, query, key);
    out = out.detach();  // cached results are shared
  }
  if (!differentiable) return out;
  const auto node =
      tensor::make_autograd_node<ContextAttentionBackward>(torch::autograd::collect_next_edges(query, key, value));
  for (const at::Tensor& tensor : {problem.query, problem.keys_and_values, out.detach(), logsumexp})
    node->saved.emplace_back(tensor);
  problem.query = problem.keys_and_values = at::Tensor();
  node->problem = std::move(problem);
  torch::autograd::set_history(out, node);
  return out;
}

}  // namespace

at::Tensor context_parallel_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                      bool is_causal, std::optional<double> scale, const ContextParallelism& split) {
  check_arguments(query, key, value, is_causal, split);
  if (split.method == ContextMethod::kUlysses)
    return attention_by_heads(query, key, value, is_causal, scale, split.group);
  const auto transport = split.method == ContextMethod::kRing ? BlockTransport::kRing : BlockTransport::kAllGather;
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  return attention_by_blocks({{}, {}, false, is_causal, factor, split.order, {transport, split.group, split.memory}},
                             query, key, value);
}

}  // namespace accel::parallel
