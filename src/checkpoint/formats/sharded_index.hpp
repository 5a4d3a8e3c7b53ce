// SPDX-License-Identifier: Apache-2.0
// The index of a model in several files: which file has which tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/formats/safetensors.hpp"

namespace accel::checkpoint {

struct ShardedIndex {
  uint64_t total_size = 0;                                      // bytes of all tensors; shared ones count once
  std::vector<std::pair<std::string, std::string>> weight_map;  // name of a tensor, name of its file
};

// The document that Accelerate writes, byte by byte: sorted, indented by 2, in ASCII.
std::string print_sharded_index(const ShardedIndex& index);

// Errors are kCorrupt and name the `source`. Files lie beside the index: a path is refused.
ShardedIndex parse_sharded_index(std::string_view document, const std::string& source);

struct Shard {
  std::string file;
  NamedTensors tensors;
};

struct ShardedModel {
  std::vector<Shard> shards;  // one of a single file, whose name has no number
  ShardedIndex index;         // its map is empty for a single file
};

// Splits tensors in their order as huggingface_hub.split_torch_state_dict_into_shards(): a tensor of more than
// `max_shard_size` bytes is a shard of its own, another one begins where the next tensor does not fit. Tensors that
// share a storage stay together. `pattern` contains "{suffix}".
ShardedModel split_into_shards(const NamedTensors& tensors, uint64_t max_shard_size, const std::string& pattern);

// "10GB", "1.5 MB", "5000": bytes. The units are TB, GB, MB and KB, powers of 1000; kInvalidArgument for anything else.
uint64_t parse_shard_size(const std::string& size);

}  // namespace accel::checkpoint
