// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor/split_layers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/embedding.h>

#include "parallel/regions/split_product.hpp"
#include "parallel/regions/vocabulary_loss.hpp"

namespace accel::parallel {

at::Tensor ColumnProduct::multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                   nn::Product product) const {
  const at::Tensor own = column_product(input_->enter(input), weight, bias, product);
  if (gathered_features_ == 0) return own;
  if (splits_scores_) return class_scores(own, classes_, group_);
  return parallel_gather(own, -1, GatheredGradient::kReplicated, group_, gathered_features_);
}

at::Tensor sum_terms(const at::Tensor& terms, const RankGroup& group, bool splits_sequence) {
  return splits_sequence ? sum_and_split_sequence(terms, group) : parallel_reduce(terms, group);
}

at::Tensor RowProduct::multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                nn::Product product) const {
  const at::Tensor own = splits_input_ ? parallel_scatter(input, -1, region_.group) : input;
  return row_product(own, weight, bias, product, region_);
}

RegionInput::Entered SplitSiblings::enter(const at::Tensor& input, const nn::SplitLinearCall& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = inputs_.try_emplace({call.splits_sequence, call.readers}, region(call.splits_sequence),
                                         static_cast<size_t>(call.readers));
  return found.first->second.enter(input);
}

at::Tensor ParameterProduct::multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                      const nn::SplitLinearCall& call) const {
  if ((dim_ == 1) == call.product.is_transposed)
    return column_product(siblings_->enter(input, call), weight, bias, call.product);
  return row_product(input, weight, bias, call.product, siblings_->region(call.splits_sequence));
}

at::Tensor RowLookup::look_up(const at::Tensor& weight, const at::Tensor& indices) const {
  at::_assert_async(indices.ge(0).logical_and_(indices.lt(rows_)).all(), "index out of range in self");
  const at::Tensor own = indices - begin_;
  const at::Tensor is_elsewhere = own.lt(0).logical_or_(own.ge(weight.size(0)));
  const at::Tensor found = at::embedding(weight, own.masked_fill(is_elsewhere, 0));
  return sum_terms(found.masked_fill_(is_elsewhere.unsqueeze(-1), 0), group_, splits_sequence_);
}

at::Tensor ColumnLookup::look_up(const at::Tensor& weight, const at::Tensor& indices) const {
  const at::Tensor whole =
      parallel_gather(at::embedding(weight, indices), -1, GatheredGradient::kReplicated, group_, features_);
  return splits_sequence_ ? split_sequence(whole, group_) : whole;
}

at::Tensor SequenceLookup::look_up(const at::Tensor& weight, const at::Tensor& indices) const {
  return split_sequence(at::embedding(weight, indices), group_);
}

nn::RoutedTokens ExpertFeatures::enter(const nn::RoutedTokens& routed) const {
  if (!splits_sequence_)
    return {parallel_copy(routed.tokens, group_), routed.experts, parallel_copy(routed.weights, group_)};
  return {gather_sequence(routed.tokens, group_), gather_sequence(routed.experts, group_),
          gather_sequence(routed.weights, group_)};
}

}  // namespace accel::parallel
