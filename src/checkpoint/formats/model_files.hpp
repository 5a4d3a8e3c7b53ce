// SPDX-License-Identifier: Apache-2.0
// Files of a model's weights: one file, or several with an index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/formats/safetensors.hpp"
#include "config/generated/settings/checkpoint/save_model.hpp"

namespace accel::checkpoint {

// From which framework weights are read.
enum class Framework : uint8_t { kTorch, kAny };

// Writes model.safetensors, or model-00001-of-000NN.safetensors and model.safetensors.index.json (pytorch_model...bin
// without safe_serialization) into the folder, which is made. Files of an earlier save of the same kind go. Tied
// tensors are written once; a safetensors file then has the other names in its metadata. Returns the names of the
// files, in order.
//
// Nothing is renamed before all files are written and synced, so a failure leaves the folder as it was. A reader that
// comes while files get their names, or after a crash at that moment, finds the earlier model or the new one, never a
// mixture: shards get their names first, then the index, and then earlier files are removed. If shards of the earlier
// model have the same names, its index first gets other names for them, ".former-<name>", which are links. On a file
// system without links the earlier index is removed instead, and a reader at that moment finds no model.
std::vector<std::string> save_model(const std::string& folder, const NamedTensors& tensors,
                                    const SaveModelSettings& settings = {}, FileSystem& files = system_files());

// The tensors of a .safetensors file, a file of torch.save(), an index, or a folder with one of them; files are
// recognised by their content. In a folder, pytorch_model.bin comes first, then model.safetensors, then the only index,
// as in Accelerate. Tied tensors have all of their names. The tensors share the mappings of the files. Files named
// .safetensors say in their metadata, under "format", whose tensors they hold: kInvalidArgument for those of another
// framework, kCorrupt for metadata that do not say it, and a warning in the log where there are none.
// @accelerate load_state_dict
NamedTensors load_state_dict(const std::string& path, Framework framework = Framework::kTorch);

}  // namespace accel::checkpoint
