// SPDX-License-Identifier: Apache-2.0
// Quantized models: the weights of linear layers and tables exchanged for codes, in memory, as they are loaded, or as
// files have them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nn/module.hpp"
#include "nn/quantized/quantized_tensors.hpp"

namespace accel::nn {

// Quantizes the layers of a model in memory, one after the other; each weight is freed before the next one is read, and
// quantized ones are not trained. Returns the names of the layers. kInvalidState for a weight without memory, offloaded
// or sharded: quantize before a model is dispatched or prepared. After an error about numbers that are not finite, the
// layers before are quantized already.
// @accelerate load_and_quantize_model
std::vector<std::string> quantize_model(Module& model, const QuantizationOptions& options);

// Prepares a model without memory for the tensors of files, as load_state_dict() maps them, and returns these with the
// weights of its layers quantized, under their names in files; one weight is in memory at a time as float.
NamedTensors quantize_weights(Module& model, const NamedTensors& files, const QuantizationOptions& options);

// Prepares a model without memory for quantized weights of the layers of these names, and adds their tensors to
// `files`, under their names in files; load_state_dict() loads them.
void install_quantized(Module& model, const std::vector<std::pair<std::string, QuantizedTensors>>& layers,
                       NamedTensors& files);

// Prepares a model without memory for files whose weights are quantized already; the tensors are loaded then. Returns
// the names of the layers, which may be none. `otherwise` as in find_quantized().
std::vector<std::string> prepare_quantized(Module& model, const NamedTensors& files, const QuantizedKind& otherwise);

// The names of the layers with quantized weights.
std::vector<std::string> quantized_layers(const Module& model);

}  // namespace accel::nn
