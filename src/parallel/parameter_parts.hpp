// SPDX-License-Identifier: Apache-2.0
// Parameter parts: a model of whose parameters each rank stores parts outside of forwards and backwards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"

namespace accel {
enum class StateDictType : int32_t;
}

namespace accel::parallel {

// A module whose parameters are gathered together.
struct ShardedModule {
  std::string path;
  std::vector<at::Tensor> parameters;  // their shards
  int64_t elements = 0;                // of the whole parameters
  int64_t shard_elements = 0;          // of these, those of this rank
};

class ParameterParts {
 public:
  virtual ~ParameterParts() = default;

  // Inner modules first.
  virtual std::vector<ShardedModule> sharded_modules() const = 0;
  // Allocates the states of an optimizer for a parameter, like it; nothing: ordinary memory.
  virtual optim::StateMemory state_memory() const = 0;
  virtual StateDictType state_dict_type() const = 0;
  // Collective, outside of forwards and backwards: the whole values of parameters, each into contiguous memory of its
  // shape and dtype.
  virtual void gather_into(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& memory) = 0;
  // Collective, outside of forwards and backwards: parameters show their whole values until they are released, each in
  // one call or another.
  virtual void gather_parameters(const std::vector<at::Tensor>& parameters) = 0;
  // Takes the values of rank `modifier` of the model's ranks, or drops changes; if that is collective or not.
  virtual void release_parameters(const std::vector<at::Tensor>& parameters, std::optional<int> modifier) = 0;
};

}  // namespace accel::parallel
