// SPDX-License-Identifier: Apache-2.0
// GGUF model: a decoder from a file in the format of llama.cpp, whose weights stay in the codes of the file.
#pragma once

#include <string>

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::bigmodel {

// The configuration, as config.json has it, of a Llama, Qwen 2 or Qwen 3. kUnsupported for other architectures and for
// settings that these models do not have here. `source` names the file.
Json config_of_gguf(const Json& metadata, bool has_head, int64_t vocabulary, const std::string& source);

// A model in evaluation mode on the CPU. Linear layers and the table of tokens keep the codes of the file, in memory of
// their own; a table that is also the head, and what is not quantized, is float32. The queries and keys of a Llama,
// whose rows the format interleaves, get the order of the hub. kNotFound that names a tensor that the file lacks.
nn::ModulePtr load_gguf_model(const std::string& path);

}  // namespace accel::bigmodel
