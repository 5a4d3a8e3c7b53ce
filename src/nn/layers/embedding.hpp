// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "nn/layers/encoded_weight.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// Looks up rows of a table that is not an ordinary matrix in memory.
class RowLookup {
 public:
  virtual ~RowLookup() = default;
  virtual at::Tensor look_up(const at::Tensor& weight, const at::Tensor& indices) const = 0;
};

// Ranks that have parts of the table look up rows together.
class SplitLookup : public RowLookup {};

class EncodedLookup : public RowLookup, public virtual EncodedWeight {};

// Looks up rows of weight [num_embeddings, embedding_dim].
class Embedding final : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim);
  explicit Embedding(at::Tensor weight);

  // A row that has no gradient, such as that of padding.
  void set_padding_row(int64_t row) { padding_row_ = row; }
  void set_split(std::shared_ptr<const SplitLookup> split);
  // The parameter "weight" has codes from then on.
  void set_encoded(std::shared_ptr<const EncodedLookup> encoded);
  // Null: the table is an ordinary matrix.
  const EncodedLookup* encoded() const;

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  at::Tensor look_up(const at::Tensor& indices) const;

  int64_t padding_row_ = -1;                 // -1: none
  std::shared_ptr<const RowLookup> lookup_;  // null: the table is whole and an ordinary matrix
};

}  // namespace accel::nn
