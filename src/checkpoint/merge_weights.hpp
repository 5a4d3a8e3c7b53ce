// SPDX-License-Identifier: Apache-2.0
// Makes one file of the weights of a model that several ranks wrote in parts.
#pragma once

#include <string>

namespace accel::checkpoint {

// From a checkpoint with chunks of its first model, or a folder of torch.distributed.checkpoint, to
// destination/model.safetensors, or pytorch_model.bin without `safe_serialization`. kNotFound if the folder has
// neither; sub-folders that have are named.
void merge_weights(const std::string& folder, const std::string& destination, bool safe_serialization,
                   bool remove_folder);

}  // namespace accel::checkpoint
