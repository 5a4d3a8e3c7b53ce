// SPDX-License-Identifier: Apache-2.0
// Offload folder: weights as files of their bytes, NAME.dat, and an index.json with their dtypes and shapes. An entry
// of the index may also name a tensor of a safetensors file. Accelerate reads and writes the same.
// @accelerate offload_state_dict, save_offload_index, OffloadedWeightsLoader
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel::bigmodel {

struct OffloadEntry {
  std::string name;
  at::ScalarType dtype;  // as it is used
  std::vector<int64_t> shape;
  std::string safetensors_file;  // "": it is in NAME.dat
  std::string weight_name;       // in that file
};

bool has_offload_index(const std::string& folder);

// Adds to the index that is there; entries of the same name are replaced.
void write_offload_index(const std::string& folder, const std::vector<OffloadEntry>& entries);
// Writes the files and their entries, and further entries with them. The folder is made. Weights that the index has
// already leave it before their files change, so that after a crash it names whole files of one call alone.
void offload_state_dict(const std::string& folder, const nn::NamedTensors& tensors,
                        const std::vector<OffloadEntry>& further = {});

struct OffloadedWeightsPlace {
  std::string folder;                 // "": the entries of the index are in safetensors files
  std::optional<std::string> index;   // the text of one; nothing: that of the folder, if there is one
  std::optional<c10::Device> device;  // of what is in safetensors files; nothing: they are mapped
  std::string prefix;                 // only names that begin so, and without it
};

// The tensors share the mapped files, unless an entry asks for another dtype than that of its file. kNotFound without
// an index; kCorrupt if the index or a file of it is not as described.
nn::NamedTensors open_offloaded_weights(const OffloadedWeightsPlace& place);
nn::NamedTensors open_offload_folder(const std::string& folder);

}  // namespace accel::bigmodel
