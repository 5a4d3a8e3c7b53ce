// SPDX-License-Identifier: Apache-2.0
// Expert ranks: how tokens come to the ranks of their experts and back, and the operators accel::dispatch_tokens and
// accel::combine_tokens, by which forwards of programs and of other libraries do it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

namespace accel::nn {

// The numbers of rows of each rank for each of this rank's experts.
using ExpertCounts = std::vector<std::vector<int64_t>>;

// The rows of this rank's experts, one expert after the other; those of one expert are in the order of the ranks.
struct DispatchedTokens {
  at::Tensor rows;
  ExpertCounts received;

  std::vector<int64_t> counts() const;  // of each of this rank's experts
};

// The ranks that have different experts of a layer. Each calls it, and differentiates it, as often and in the same
// order, also without a row.
class ExpertRanks {
 public:
  // Takes the rows of each of this rank's experts with their numbers, and gives as many rows.
  using Compute = std::function<at::Tensor(const at::Tensor& rows, const std::vector<int64_t>& counts)>;

  virtual ~ExpertRanks() = default;
  // `rows` are sorted by all experts, of which each has as many as `counts` says.
  virtual DispatchedTokens dispatch(const at::Tensor& rows, const std::vector<int64_t>& counts) const = 0;
  // The results of dispatched rows, in the order of those that this rank has sent.
  virtual at::Tensor combine(const at::Tensor& results, const std::vector<int64_t>& counts,
                             const ExpertCounts& received) const = 0;

  // Dispatches, computes and combines.
  at::Tensor run(const at::Tensor& rows, const std::vector<int64_t>& counts, const Compute& compute) const;
};

inline constexpr const char* kDispatchTokensSchema =
    "dispatch_tokens(Tensor rows, Tensor counts, Tensor weight) -> (Tensor rows, Tensor received)";
inline constexpr const char* kCombineTokensSchema =
    "combine_tokens(Tensor results, Tensor counts, Tensor received, Tensor weight) -> Tensor";

// The ranks that share out a parameter whose first dimension are experts; for as long as something else owns `ranks`.
void mark_expert_ranks(const at::Tensor& weight, const std::shared_ptr<const ExpertRanks>& ranks);

// `weight` is any parameter of the experts; of one that is not shared out each rank has all experts, and nothing is
// sent. `counts` is int64 [experts], `received` int64 [ranks, this rank's experts].
std::tuple<at::Tensor, at::Tensor> dispatch_tokens(const at::Tensor& rows, const at::Tensor& counts,
                                                   const at::Tensor& weight);
at::Tensor combine_tokens(const at::Tensor& results, const at::Tensor& counts, const at::Tensor& received,
                          const at::Tensor& weight);

}  // namespace accel::nn
