// SPDX-License-Identifier: Apache-2.0
// Split layers: the layers of Megatron-LM (Shoeybi et al., 2019), each rank of which has a part of the weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "nn/layers/embedding.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/layers/projection.hpp"
#include "nn/split/split_classes.hpp"
#include "nn/split/split_linear.hpp"
#include "parallel/regions/region_input.hpp"
#include "parallel/regions/sequence_region.hpp"
#include "parallel/regions/split_region.hpp"

namespace accel::parallel {

// Each rank computes some features of the output from the whole input.
class ColumnProduct final : public nn::SplitProduct {
 public:
  // `gathered_features`: the number of all, which every rank returns; 0: a rank returns its own. `classes`: those that
  // its features may be, as its weight is marked; null: they are none. `splits_scores`: they stay split for a loss.
  ColumnProduct(RankGroup group, std::shared_ptr<RegionInput> input, int64_t gathered_features,
                nn::SplitClassesPtr classes = nullptr, bool splits_scores = false)
      : group_(std::move(group)),
        input_(std::move(input)),
        gathered_features_(gathered_features),
        classes_(std::move(classes)),
        splits_scores_(splits_scores) {}
  at::Tensor multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      nn::Product product) const override;

 private:
  RankGroup group_;
  std::shared_ptr<RegionInput> input_;
  int64_t gathered_features_;
  nn::SplitClassesPtr classes_;
  bool splits_scores_;
};

// The ranks sum their terms of a whole output, and each takes its positions of the sequence where
// sequences are split.
at::Tensor sum_terms(const at::Tensor& terms, const RankGroup& group, bool splits_sequence);

// Each rank has some of the input's features, and the products are summed.
class RowProduct final : public nn::SplitProduct {
 public:
  RowProduct(SplitRegion region, bool splits_input) : region_(std::move(region)), splits_input_(splits_input) {}
  at::Tensor multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      nn::Product product) const override;

 private:
  SplitRegion region_;
  bool splits_input_;
};

// Layers of another library that one module contains: those with split outputs read the same input.
class SplitSiblings {
 public:
  explicit SplitSiblings(const SplitRegion& region) : whole_(region), sequence_(region) {
    whole_.sequence_parallel = false;
    sequence_.sequence_parallel = true;
  }

  const SplitRegion& region(bool splits_sequence) const { return splits_sequence ? sequence_ : whole_; }
  // Threads may call this at the same time.
  RegionInput::Entered enter(const at::Tensor& input, const nn::SplitLinearCall& call);

 private:
  SplitRegion whole_, sequence_;
  std::mutex mutex_;
  // By whether sequences are split, and the number of readers.
  std::map<std::pair<bool, int64_t>, RegionInput> inputs_;
};

// The product of a layer of another library, whose weight is a parameter with a rule of its own.
class ParameterProduct final : public nn::SplitLinear {
 public:
  // `dim`: the dimension of the weight that is cut.
  ParameterProduct(std::shared_ptr<SplitSiblings> siblings, size_t dim) : siblings_(std::move(siblings)), dim_(dim) {}
  at::Tensor multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      const nn::SplitLinearCall& call) const override;

 private:
  std::shared_ptr<SplitSiblings> siblings_;
  size_t dim_;
};

// Each rank has some of the table's rows.
class RowLookup final : public nn::SplitLookup {
 public:
  // The rank's first row, and the number of all.
  RowLookup(RankGroup group, int64_t begin, int64_t rows, bool splits_sequence)
      : group_(std::move(group)), begin_(begin), rows_(rows), splits_sequence_(splits_sequence) {}
  at::Tensor look_up(const at::Tensor& weight, const at::Tensor& indices) const override;

 private:
  RankGroup group_;
  int64_t begin_, rows_;
  bool splits_sequence_;
};

// Each rank has some features of all rows.
class ColumnLookup final : public nn::SplitLookup {
 public:
  ColumnLookup(RankGroup group, int64_t features, bool splits_sequence)
      : group_(std::move(group)), features_(features), splits_sequence_(splits_sequence) {}
  at::Tensor look_up(const at::Tensor& weight, const at::Tensor& indices) const override;

 private:
  RankGroup group_;
  int64_t features_;  // of all ranks
  bool splits_sequence_;
};

// Each rank has the whole table, and looks up its positions of the sequence.
class SequenceLookup final : public nn::SplitLookup {
 public:
  explicit SequenceLookup(RankGroup group) : group_(std::move(group)) {}
  at::Tensor look_up(const at::Tensor& weight, const at::Tensor& indices) const override;

 private:
  RankGroup group_;
};

// Experts of which each rank has some features. Ranks have the same tokens, or different positions of a sequence.
class ExpertFeatures final : public nn::SplitExperts {
 public:
  ExpertFeatures(RankGroup group, bool splits_sequence) : group_(std::move(group)), splits_sequence_(splits_sequence) {}

  nn::RoutedTokens enter(const nn::RoutedTokens& routed) const override;
  at::Tensor leave(const at::Tensor& terms) const override { return sum_terms(terms, group_, splits_sequence_); }

 private:
  RankGroup group_;
  bool splits_sequence_;
};

}  // namespace accel::parallel
