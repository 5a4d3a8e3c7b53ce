#pragma once

#include <memory>
#include <utility>

#include "nn/module.hpp"

namespace accel::nn {

// How ranks that have parts of the table look up rows together.
class SplitLookup {
 public:
  virtual ~SplitLookup() = default;
  virtual at::Tensor look_up(const at::Tensor& weight, const at::Tensor& indices) const = 0;
};

// Looks up rows of weight [num_embeddings, embedding_dim].
class Embedding final : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim);
  explicit Embedding(at::Tensor weight);

  // A row that has no gradient, such as that of padding.
  void set_padding_row(int64_t row) { padding_row_ = row; }
  void set_split(std::shared_ptr<const SplitLookup> split) { split_ = std::move(split); }

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  at::Tensor look_up(const at::Tensor& indices) const;

  int64_t padding_row_ = -1;                  // -1: none
  std::shared_ptr<const SplitLookup> split_;  // null: this rank has the whole table
};

}  // namespace accel::nn
