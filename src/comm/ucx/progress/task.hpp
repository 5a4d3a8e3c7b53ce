// SPDX-License-Identifier: Apache-2.0
// Task: the collectives of one call, which run one after the other.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "comm/ucx/algorithms/block_collective.hpp"

namespace c10d {
enum class OpType : std::uint8_t;
}

namespace accel::comm::ucx {

struct Task {
  explicit Task(c10d::OpType type) : type(type) {}

  // Makes the other task a part of this one.
  void append(Task&& other);

  c10::SmallVector<Collective, 1> parts;
  c10::SmallVector<at::Tensor, 2> held;                   // keeps the memory of the parts alive
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // (to, from): results for tensors that are not contiguous
  std::chrono::milliseconds timeout{0};
  // For its work, which takes the outputs.
  c10d::OpType type;
  std::vector<at::Tensor> outputs;
  std::shared_ptr<std::vector<at::Tensor>> blocks;  // of a gather in place, by rank
  bool is_async = false;                            // otherwise its caller waits for it
};

}  // namespace accel::comm::ucx
