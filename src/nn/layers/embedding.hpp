#pragma once

#include "nn/module.hpp"

namespace accel::nn {

// Looks up rows of weight [num_embeddings, embedding_dim].
class Embedding final : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim);
  explicit Embedding(at::Tensor weight);

 protected:
  c10::IValue forward(const Inputs& inputs) override;
};

}  // namespace accel::nn
