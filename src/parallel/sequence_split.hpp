// SPDX-License-Identifier: Apache-2.0
// Sequence split: the ranks of a group have parts of the positions of each sequence, and attend to all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"

namespace accel {
struct ContextParallelSettings;
}

namespace accel::parallel {

// A tensor that shows this rank's positions along `dim` in a scope: its data are exchanged, the handle stays.
struct SplitBuffer {
  at::Tensor tensor;
  int64_t dim = 0;
  bool restore = true;  // afterwards
};

class SequenceSplit {
 public:
  // Ends with its life, on its thread.
  class Scope {
   public:
    Scope() = default;
    virtual ~Scope() = default;
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  SequenceSplit() = default;
  virtual ~SequenceSplit() = default;
  SequenceSplit(const SequenceSplit&) = delete;
  SequenceSplit& operator=(const SequenceSplit&) = delete;

  // Attention on this thread is of whole sequences.
  virtual std::unique_ptr<Scope> open(std::vector<SplitBuffer> buffers) const = 0;
  virtual at::Tensor part_of(const at::Tensor& whole, int64_t dim) const = 0;
  // The whole on all ranks; collective. Its gradient is a term of a sum over the ranks.
  virtual at::Tensor join(const at::Tensor& part, int64_t dim) const = 0;
  // The positions of this rank, int64 on the CPU.
  virtual at::Tensor positions(int64_t length) const = 0;
};

using SequenceSplitPtr = std::shared_ptr<const SequenceSplit>;

// Throws kInvalidArgument for settings that contradict each other.
SequenceSplitPtr split_sequences(const ContextParallelSettings& settings,
                                 const std::shared_ptr<comm::Communicator>& group);

}  // namespace accel::parallel
