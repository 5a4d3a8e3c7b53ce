// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/quantized_model.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/encoded_tensors.hpp"
#include "nn/layers/projection.hpp"
#include "nn/module_walks.hpp"
#include "nn/quantized/quantized_layers.hpp"
#include "nn/quantized/quantized_matrix.hpp"
#include "tensor/set_data.hpp"

namespace accel::nn {
namespace {

constexpr const char* kWeightName = "weight";

bool has_outputs_last(const Module& layer) {
  const auto* const projection = dynamic_cast<const Projection*>(&layer);
  return projection != nullptr && projection->output_dim() == 1;
}

// [outputs, inputs]
at::Tensor with_outputs_first(const Module& layer, const at::Tensor& weight) {
  return has_outputs_last(layer) ? weight.t() : weight;
}

void require_values(const QuantizedLayer& layer) {
  const at::Tensor& weight = layer.module->parameter(Projection::kWeight);
  const bool is_here = !weight.is_meta() && layer.module->weight_store() == nullptr &&
                       layer.module->placement(Projection::kWeight) == nullptr && weight.dim() == 2;
  require(is_here, Status::kInvalidState, "the weight of '", layer.name,
          "' has no memory, is offloaded or a shard, and cannot be quantized; expected a model that is whole and in "
          "memory, before it is dispatched or prepared");
}

at::Tensor without_memory(const at::Tensor& tensor) {
  return at::empty_like(tensor, tensor.options().device(at::kMeta));
}

QuantizedTensors shapes_of_tensors(const QuantizedTensors& tensors) {
  QuantizedTensors shapes{tensors.state, without_memory(tensors.codes), {}};
  for (const auto& [name, tensor] : tensors.buffers) shapes.buffers.emplace_back(name, without_memory(tensor));
  return shapes;
}

void convert(const at::Tensor& tensor, at::ScalarType dtype) {
  if (!tensor.is_floating_point() || tensor.scalar_type() == dtype) return;
  tensor::set_data(tensor, tensor.detach().to(dtype));
}

// Converts tensors that are not quantized; a tied one stays in float32 if any of its names is.
void convert_others(Module& model, const QuantizationOptions& options) {
  const auto encoded = encoded_tensors(model);
  std::unordered_set<const at::TensorImpl*> kept;
  for (const auto& [path, module] : named_modules(model)) {
    if (!is_left_out(path, options.keep_in_fp32_modules)) continue;
    for (const auto& member : members_of(*module)) {
      if (encoded.count(member.tensor.unsafeGetTensorImpl()) > 0) continue;
      kept.insert(member.tensor.unsafeGetTensorImpl());
      convert(member.tensor, at::kFloat);
    }
  }
  if (!options.dtype) return;
  for (const auto& [name, tensor] : named_members(model))
    if (kept.count(tensor.unsafeGetTensorImpl()) == 0 && encoded.count(tensor.unsafeGetTensorImpl()) == 0)
      convert(tensor, *options.dtype);
}

// Reads the weight that files have under this name, or under one of the hub.
struct FileWeight {
  std::string name;
  at::Tensor tensor;
};

std::string file_name(const HubNames& names, const std::string& path, at::IntArrayRef sizes) {
  const std::vector<HubPart> parts = names.parts_of(path, sizes);
  return parts.size() == 1 && parts[0].expert < 0 ? parts[0].name : path;
}

FileWeight weight_in(const TensorsByName& files, const HubNames& names, const QuantizedLayer& layer) {
  const std::string path = join_path(layer.name, kWeightName);
  const at::Tensor& member = layer.module->parameter(Projection::kWeight);
  const std::string hub_name = file_name(names, path, member.sizes());
  auto found = files.find(path);
  if (found == files.end()) found = files.find(hub_name);
  require(found != files.end(), Status::kNotFound, "the files lack '", hub_name, "', which would be quantized",
          "; expected the weights of all layers");
  require(found->second.sizes() == member.sizes(), Status::kShapeMismatch, "weights of another shape: ", found->first,
          " ", found->second.sizes(), " instead of ", member.sizes(), "; expected the shapes of the model");
  return {found->first, found->second};
}

}  // namespace

std::vector<std::string> quantize_model(Module& model, const QuantizationOptions& options) {
  const QuantizedKind kind = make_quantized_kind(options);
  const std::vector<QuantizedLayer> layers = select_quantized_layers(model, options);
  for (const QuantizedLayer& layer : layers) require_values(layer);
  const at::NoGradGuard no_grad;
  std::vector<std::string> names;
  for (const QuantizedLayer& layer : layers) {
    const at::Tensor weight = layer.module->parameter(Projection::kWeight).detach();
    QuantizedMatrix::install(
        *layer.module, layer.name,
        quantize_matrix(with_outputs_first(*layer.module, weight), kind, join_path(layer.name, kWeightName)));
    names.push_back(layer.name);
  }
  convert_others(model, options);
  return names;
}

void install_quantized(Module& model, const std::vector<std::pair<std::string, QuantizedTensors>>& layers,
                       NamedTensors& files) {
  for (const auto& [layer, tensors] : layers)
    QuantizedMatrix::install(*model.find(layer), layer, shapes_of_tensors(tensors));
  const HubNames names(model);
  for (const auto& [layer, tensors] : layers) {
    const auto add = [&names, &files, &path = layer](const std::string& member, const at::Tensor& tensor) {
      files.emplace_back(file_name(names, join_path(path, member), tensor.sizes()), tensor);
    };
    add(kWeightName, tensors.codes);
    for (const auto& [member, tensor] : tensors.buffers) add(member, tensor);
  }
}

NamedTensors quantize_weights(Module& model, const NamedTensors& files, const QuantizationOptions& options) {
  const QuantizedKind kind = make_quantized_kind(options);
  const std::vector<QuantizedLayer> layers = select_quantized_layers(model, options);
  const TensorsByName given(files.begin(), files.end());
  const at::NoGradGuard no_grad;
  std::unordered_set<std::string> exchanged;
  std::vector<std::pair<std::string, QuantizedTensors>> made;
  {
    const HubNames names(model);
    for (const QuantizedLayer& layer : layers) {
      const FileWeight weight = weight_in(given, names, layer);
      made.emplace_back(layer.name,
                        quantize_matrix(with_outputs_first(*layer.module, weight.tensor), kind, weight.name));
      exchanged.insert(weight.name);
    }
  }
  NamedTensors quantized;
  for (const auto& entry : files)
    if (exchanged.count(entry.first) == 0) quantized.push_back(entry);
  install_quantized(model, made, quantized);
  convert_others(model, options);
  return quantized;
}

std::vector<std::string> prepare_quantized(Module& model, const NamedTensors& files, const QuantizedKind& otherwise) {
  const TensorsByName given(files.begin(), files.end());
  const HubNames names(model);
  std::vector<std::string> prepared;
  std::vector<std::pair<ModulePtr, QuantizedTensors>> found;
  for (const auto& [path, module] : named_modules(model)) {
    const bool is_layer =
        dynamic_cast<const Projection*>(module) != nullptr || dynamic_cast<const Embedding*>(module) != nullptr;
    if (!is_layer) continue;
    const std::string member = join_path(path, kWeightName);
    const std::string name = file_name(names, member, module->parameter(Projection::kWeight).sizes());
    QuantizedTensors tensors = find_quantized(given, given.count(member) > 0 ? member : name, otherwise);
    if (!tensors.codes.defined()) continue;
    found.emplace_back(const_cast<Module*>(module)->shared_from_this(), shapes_of_tensors(tensors));
    prepared.push_back(path);
  }
  for (size_t i = 0; i < found.size(); i++) QuantizedMatrix::install(*found[i].first, prepared[i], found[i].second);
  return prepared;
}

std::vector<std::string> quantized_layers(const Module& model) {
  std::vector<std::string> names;
  for (const auto& [path, module] : named_modules(model))
    if (quantized_matrix(*module) != nullptr) names.push_back(path);
  return names;
}

}  // namespace accel::nn
