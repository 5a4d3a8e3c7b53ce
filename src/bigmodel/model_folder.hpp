// A folder with a model of Hugging Face: configuration, weights, tokenizer.
#pragma once

#include <string>

#include "nn/module.hpp"

namespace accel::bigmodel {

// The model of config.json with the folder's weights, on the CPU, in the dtype of the files, which are mapped.
// kNotFound that names a parameter without weights.
nn::ModulePtr load_model_folder(const std::string& folder);

// Copies what such a folder has beside the weights and their index: configurations, vocabularies, templates. Nothing
// happens where both are one folder.
void copy_model_files(const std::string& folder, const std::string& copy);

}  // namespace accel::bigmodel
