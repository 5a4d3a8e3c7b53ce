// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/quantized_matrix.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>

#include <algorithm>

#include "base/error.hpp"
#include "nn/layers/encoded_tensors.hpp"
#include "nn/quantized/coded_product.hpp"

namespace accel::nn {
namespace {

int64_t version_of_buffer(const at::Tensor& tensor) {
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

const void* memory_of_buffer(const at::Tensor& tensor) { return tensor.is_meta() ? nullptr : tensor.const_data_ptr(); }

}  // namespace

QuantizedMatrix::QuantizedMatrix(const Module& layer, QuantizedState state, size_t num_buffers)
    : layer_(layer), state_(std::move(state)), first_(layer.direct_buffers().size()), num_buffers_(num_buffers) {}

void QuantizedMatrix::install(Module& layer, const std::string& name, const QuantizedTensors& tensors) {
  auto* const projection = dynamic_cast<Projection*>(&layer);
  auto* const embedding = dynamic_cast<Embedding*>(&layer);
  require(projection != nullptr || embedding != nullptr, Status::kUnsupported, "'", name, "' is a ", layer.kind(),
          "; expected a linear layer or an embedding to quantize");
  const at::Tensor weight = layer.parameter(Projection::kWeight);
  const std::vector<int64_t>& sizes = tensors.state.sizes;
  const bool is_transposed = projection != nullptr && projection->output_dim() == 1;
  require(encoded_weight(layer) != nullptr || (weight.dim() == 2 && weight.size(is_transposed ? 1 : 0) == sizes[0] &&
                                               weight.size(is_transposed ? 0 : 1) == sizes[1]),
          Status::kShapeMismatch, "the weight of '", name, "' is ", weight.sizes(), " and the quantized one ",
          at::IntArrayRef(sizes), "; expected the same sizes, outputs first");
  const std::shared_ptr<QuantizedMatrix> matrix(new QuantizedMatrix(layer, tensors.state, tensors.buffers.size()));
  if (projection != nullptr)
    projection->set_encoded(matrix);
  else
    embedding->set_encoded(matrix);
  layer.replace_tensor(layer.direct_parameters()[Projection::kWeight].first, tensors.codes);
  for (const auto& [buffer, tensor] : tensors.buffers) layer.add_buffer(buffer, tensor);
}

NamedTensors QuantizedMatrix::buffers() const {
  NamedTensors found;
  for (size_t i = first_; i < first_ + num_buffers_; i++)
    found.emplace_back(layer_.direct_buffers()[i].name, layer_.direct_buffers()[i].tensor);
  return found;
}

CodedMatrix QuantizedMatrix::matrix() const {
  const at::Tensor& codes = layer_.parameter(Projection::kWeight);
  std::vector<BufferVersion> versions;
  versions.reserve(num_buffers_);
  for (size_t i = first_; i < first_ + num_buffers_; i++) {
    const at::Tensor& buffer = layer_.direct_buffers()[i].tensor;
    versions.emplace_back(memory_of_buffer(buffer), version_of_buffer(buffer));
  }
  const std::lock_guard lock(mutex_);
  if (decoded_ != versions) {
    scales_ = decode_state(state_, at::Tensor(), buffers());
    decoded_ = std::move(versions);
  }
  CodedMatrix matrix = scales_;
  matrix.codes = codes.detach();
  return matrix;
}

at::Tensor QuantizedMatrix::values(at::ScalarType dtype) const { return matrix().values(dtype); }

std::vector<std::pair<std::string, std::string>> QuantizedMatrix::file_names() const {
  return names_in_files(state_.kind.name, buffers());
}

NamedTensors QuantizedMatrix::encode(const at::Tensor& values, const std::string& layer) const {
  const NamedTensors own = buffers();
  const QuantizedTensors made = quantize_again(values, state_, own, layer);
  NamedTensors members{{layer_.direct_parameters()[Projection::kWeight].first, made.codes}};
  for (const auto& [name, tensor] : made.buffers)  // files may leave some out
    if (std::any_of(own.begin(), own.end(), [&name = name](const auto& buffer) { return buffer.first == name; }))
      members.emplace_back(name, tensor);
  return members;
}

at::Tensor QuantizedMatrix::multiply(const at::Tensor& input, const at::Tensor&, const at::Tensor& bias,
                                     Product) const {
  return coded_product(matrix(), state_.kind, input, bias);
}

at::Tensor QuantizedMatrix::look_up(const at::Tensor&, const at::Tensor& indices) const {
  if (indices.numel() > 0) {
    const auto [least, most] = at::aminmax(indices);
    require(least.item().toLong() >= 0 && most.item().toLong() < state_.sizes[0], Status::kInvalidArgument,
            "an embedding of ", state_.sizes[0], " rows was called with indices from ", least.item().toLong(), " to ",
            most.item().toLong(), "; expected 0 to ", state_.sizes[0] - 1);
  }
  return matrix().rows(indices, state_.dtype);
}

const QuantizedMatrix* quantized_matrix(const Module& layer) {
  return dynamic_cast<const QuantizedMatrix*>(encoded_weight(layer));
}

}  // namespace accel::nn
