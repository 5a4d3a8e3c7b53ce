// SPDX-License-Identifier: Apache-2.0
// Quantized layers: which layers of a model are quantized, by the rules of Accelerate's load_and_quantize_model().
#pragma once

#include <string>
#include <vector>

#include "nn/module.hpp"
#include "nn/quantized/quantized_kind.hpp"

namespace accel::nn {

struct QuantizedLayer {
  std::string name;
  ModulePtr module;  // a projection or an embedding
};

// The modules whose weights are tied to others, and the last child of the model, which is its head; a base model
// without tied weights has none.
// @accelerate get_keys_to_not_convert
std::vector<std::string> keys_not_to_convert(const Module& model);

// Linear layers, and with options.embeddings tables, that no name of options leaves out: a name is that of a module,
// the last part of it, or a part of a path before a dot. Experts of mixtures and their routers are none. kNotFound for
// a name of options that fits no module, kInvalidArgument if no layer is left or a weight of one is tied.
std::vector<QuantizedLayer> select_quantized_layers(Module& model, const QuantizationOptions& options);

// Whether a name of the list leaves out a module.
bool is_left_out(const std::string& path, const std::vector<std::string>& names);

}  // namespace accel::nn
