// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/embedding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <utility>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/initial.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim) : Module("Embedding") {
  check_size(num_embeddings, "num_embeddings");
  check_size(embedding_dim, "embedding_dim");
  add_parameter("weight", at::empty({num_embeddings, embedding_dim}, new_parameter_options()));
  fill_normal(parameter(0), 0.0, 1.0);
}

Embedding::Embedding(at::Tensor weight) : Module("Embedding") { add_parameter("weight", std::move(weight)); }

void Embedding::set_split(std::shared_ptr<const SplitLookup> split) {
  require(encoded() == nullptr, Status::kUnsupported,
          "an embedding with a quantized table is not split over ranks; expected DDP, full sharding or a model without "
          "quantized layers");
  lookup_ = std::move(split);
}

void Embedding::set_encoded(std::shared_ptr<const EncodedLookup> encoded) {
  require(lookup_ == nullptr, Status::kUnsupported, "an embedding whose table is ",
          this->encoded() == nullptr ? "split over ranks" : "quantized already",
          " cannot be quantized; expected a table that is whole and has its numbers");
  lookup_ = std::move(encoded);
}

const EncodedLookup* Embedding::encoded() const { return dynamic_cast<const EncodedLookup*>(lookup_.get()); }

at::Tensor Embedding::look_up(const at::Tensor& indices) const {
  try {
    return at::embedding(parameter(0), indices, padding_row_);
  } catch (const c10::IndexError&) {
    fail(Status::kInvalidArgument, "an embedding of ", parameter(0).size(0), " rows was called with indices from ",
         indices.min().item<int64_t>(), " to ", indices.max().item<int64_t>(), "; expected 0 to ",
         parameter(0).size(0) - 1);
  }
}

c10::IValue Embedding::forward(const Inputs& inputs) {
  const at::Tensor& indices = only_tensor(inputs);
  require(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt, Status::kTypeMismatch,
          "an embedding was called with dtype ", tensor::dtype_name(indices.scalar_type()),
          "; expected int64 or int32");
  if (lookup_ == nullptr) return look_up(indices);
  at::Tensor rows = lookup_->look_up(parameter(0), indices);
  if (padding_row_ < 0) return rows;
  return at::where(indices.eq(padding_row_).unsqueeze(-1), rows.detach(), rows);
}

}  // namespace accel::nn
