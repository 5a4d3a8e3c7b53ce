// SPDX-License-Identifier: Apache-2.0
// Folders of torch.distributed.checkpoint: a pickle `.metadata`, which says where the chunks of each tensor are, and
// files in which each chunk is as torch.save() writes it.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "checkpoint/formats/safetensors.hpp"

namespace accel::checkpoint {

inline constexpr const char* kDistributedListFile = ".metadata";

bool is_distributed_checkpoint(const std::string& folder);

// The tensors of a state dict, whole. Names are without the first key that all have, as "model". Values that are not
// tensors are left out with a warning. kCorrupt if chunks are missing or do not fit.
NamedTensors read_distributed_checkpoint(const std::string& folder);

// The nested state dict below `key`, as "optimizer", or below the only key that there is, with what is not a tensor.
// Tensors in chunks are tensor::SavedTensor, whose chunks stay in their files until they are read.
c10::IValue read_distributed_state(const std::string& folder, const char* key);

}  // namespace accel::checkpoint
