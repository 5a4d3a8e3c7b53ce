// SPDX-License-Identifier: Apache-2.0
// Quantized matrix: the weight of a linear layer or the table of an embedding whose codes and buffers the layer has.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/embedding.hpp"
#include "nn/layers/projection.hpp"
#include "nn/quantized/quantized_tensors.hpp"

namespace accel::nn {

class QuantizedMatrix final : public EncodedProduct, public EncodedLookup {
 public:
  // Exchanges the weight of a projection or an embedding, which is not trained from then on. Throws kUnsupported if the
  // layer is another one, or its weight is split or quantized already, and kShapeMismatch if it has other sizes.
  static void install(Module& layer, const std::string& name, const QuantizedTensors& tensors);

  const QuantizedState& state() const { return state_; }

  at::IntArrayRef sizes() const override { return state_.sizes; }
  at::Tensor values(at::ScalarType dtype) const override;
  std::vector<std::pair<std::string, std::string>> file_names() const override;
  NamedTensors encode(const at::Tensor& values, const std::string& layer) const override;
  at::Tensor multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      Product product) const override;
  // In the dtype of the numbers that were quantized.
  at::Tensor look_up(const at::Tensor& weight, const at::Tensor& indices) const override;

 private:
  QuantizedMatrix(const Module& layer, QuantizedState state, size_t num_buffers);
  NamedTensors buffers() const;
  // The codes with the scales, which are decoded again when the buffers have changed.
  CodedMatrix matrix() const;

  const Module& layer_;  // has this
  const QuantizedState state_;
  const size_t first_, num_buffers_;  // of the layer's buffers

  // The memory and the version of a buffer.
  using BufferVersion = std::pair<const void*, int64_t>;
  mutable std::mutex mutex_;
  mutable std::vector<BufferVersion> decoded_;
  mutable CodedMatrix scales_;  // without codes
};

// The quantized weight of a layer; null: it has none.
const QuantizedMatrix* quantized_matrix(const Module& layer);

}  // namespace accel::nn
