// SPDX-License-Identifier: Apache-2.0
// Saved weights: what autograd saves of offloaded weights, for backwards through them. A graph would keep the memory of
// every block that it went through; instead it has stand-ins that bring the blocks again when a backward needs them.
#pragma once

#include <memory>
#include <vector>

#include "bigmodel/streams/block_stream.hpp"
#include "tensor/autograd/saved_tensor_hooks.hpp"

namespace accel::bigmodel {

// For the forward of a block on this thread.
std::unique_ptr<tensor::SavedTensorHooks> save_without_weights(std::shared_ptr<BlockStream> stream, size_t block);

}  // namespace accel::bigmodel
