// SPDX-License-Identifier: Apache-2.0
// A folder with a model of Hugging Face: configuration, weights, tokenizer.
#pragma once

#include <string>

#include "nn/module.hpp"
#include "nn/quantized/quantized_kind.hpp"

namespace accel::bigmodel {

// The model of config.json with the folder's weights, on the CPU, in the dtype of the files, which are mapped.
// kNotFound that names a parameter without weights. Weights that files have as codes stay codes, as quantization_config
// says. `quantization`: weights are quantized as they are read, one after the other; null: they are not.
nn::ModulePtr load_model_folder(const std::string& folder, const nn::QuantizationOptions* quantization = nullptr);

// Makes the quantization_config of a folder's config.json say how the layers of the model are quantized, or removes it.
void write_quantization_config(const std::string& folder, const nn::Module& model);

// Copies what such a folder has beside the weights and their index: configurations, vocabularies, templates. Nothing
// happens where both are one folder.
void copy_model_files(const std::string& folder, const std::string& copy);

}  // namespace accel::bigmodel
