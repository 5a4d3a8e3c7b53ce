// Shard options: how the shards of a model are stored and used.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace accel::parallel {

// Dtypes without a value are the parameters' own.
struct ShardOptions {
  std::optional<at::ScalarType> param_dtype;   // of whole parameters
  std::optional<at::ScalarType> reduce_dtype;  // in which gradients are summed; else that of whole parameters
  bool cpu_offload = false;                    // shards, their gradients and so the optimizer are on the host
  bool offload_optimizer = false;  // the same, and a copy of the shards stays on the device for the ranks to gather
  std::string offload_folder;      // in files of it are shards of cpu_offload, and gradients of offload_optimizer
};

}  // namespace accel::parallel
