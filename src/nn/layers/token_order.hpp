// SPDX-License-Identifier: Apache-2.0
// Token order: the tokens of a batch in the order of the experts that they have chosen, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::nn {

// A token has a place for each expert that it has chosen. Rows are places sorted by their experts; those of one expert
// are in the order of the tokens. All functions have gradients of any order.
class TokenOrder : public std::enable_shared_from_this<TokenOrder> {
 public:
  // `choice` is [tokens, experts of a token]. An expert takes the first `most` of its tokens, the other places have no
  // row; 0: all.
  static std::shared_ptr<const TokenOrder> create(const at::Tensor& choice, int64_t experts, int64_t most = 0);

  // The number of rows of each expert.
  const std::vector<int64_t>& counts() const { return counts_; }
  // The number of places of each expert, those without a row included.
  const std::vector<int64_t>& chosen() const { return chosen_; }

  // [rows, size]: the row of a place is its token, of [tokens, size].
  at::Tensor spread(const at::Tensor& tokens) const;
  // [tokens, experts of a token, size]: each place has its row, or zeros.
  at::Tensor to_places(const at::Tensor& rows) const;

 private:
  TokenOrder() = default;
  at::Tensor to_rows(const at::Tensor& places) const;
  friend class TokenOrderBackward;

  std::vector<int64_t> counts_, chosen_;
  int64_t tokens_ = 0, per_token_ = 0;
  at::Tensor places_;  // of each row
  at::Tensor rows_;    // of each place; behind the last row where it has none
  bool drops_ = false;
};

using TokenOrderPtr = std::shared_ptr<const TokenOrder>;

}  // namespace accel::nn
