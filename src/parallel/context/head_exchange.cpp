// SPDX-License-Identifier: Apache-2.0
#include "parallel/context/head_exchange.hpp"

#include <ATen/ops/scaled_dot_product_attention.h>

#include "base/error.hpp"

namespace accel::parallel {
namespace {

void check_heads(int64_t heads, int64_t key_heads, int64_t ranks) {
  require(heads >= ranks, Status::kInvalidArgument, "the method ulysses has ", heads, " heads for ", ranks,
          " ranks; expected one or more for each rank, fewer ranks, or the method ring");
  require(key_heads == heads || (heads % ranks == 0 && (key_heads % ranks == 0 || ranks % key_heads == 0)),
          Status::kInvalidArgument, "the method ulysses has ", heads, " heads with ", key_heads, " key heads for ",
          ranks,
          " ranks; expected ranks that divide the heads, and that divide the key heads or are a multiple of them");
}

at::Tensor repeated(const at::Tensor& heads, int64_t times) {
  return times == 1 ? heads : heads.repeat_interleave(times, 1);
}

}  // namespace

at::Tensor attention_by_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool is_causal,
                              std::optional<double> scale, const RankGroup& group) {
  const int64_t ranks = group->size(), heads = query.size(1), key_heads = key.size(1);
  check_heads(heads, key_heads, ranks);
  const int64_t copies = key_heads < ranks ? ranks / key_heads : 1;
  const at::Tensor own_query = parallel_all_to_all(query, 1, 2, group);
  const at::Tensor own_key = parallel_all_to_all(repeated(key, copies), 1, 2, group);
  const at::Tensor own_value = parallel_all_to_all(repeated(value, copies), 1, 2, group);
  // Each head of keys for as many of queries: LibTorch's fast kernel wants the same number of both.
  const int64_t shared_by = own_query.size(1) / own_key.size(1);
  const at::Tensor mixed = at::scaled_dot_product_attention(own_query, repeated(own_key, shared_by),
                                                            repeated(own_value, shared_by), {}, 0.0, is_causal, scale);
  return parallel_all_to_all(mixed, 2, 1, group, heads);
}

}  // namespace accel::parallel
