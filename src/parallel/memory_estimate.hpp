// SPDX-License-Identifier: Apache-2.0
// Memory estimate: what training a model takes on each rank, from the shapes of its parameters. Each kind of
// parallelism follows its own steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "nn/module.hpp"

namespace accel {
struct EstimateMemorySettings;
}

namespace accel::parallel {

// Bytes by what they are for.
struct MemoryUse {
  int64_t parameters = 0;           // as they are stored: all, or this rank's shards
  int64_t parameter_copies = 0;     // in the precision of the computation, saved from step to step
  int64_t buffers = 0;              // of the model
  int64_t optimizer_states = 0;     // of the parameters above
  int64_t gathered_parameters = 0;  // whole ones, used or on their way
  int64_t gradients = 0;            // whole ones that autograd made, and shards that wait for the optimizer
  int64_t exchanged_gradients = 0;  // buckets; or whole gradients that are reduced, with the shards that they become
  int64_t activations = 0;

  int64_t total() const {
    return parameters + parameter_copies + buffers + optimizer_states + gathered_parameters + gradients +
           exchanged_gradients + activations;
  }
};

enum class TrainingPhase : uint8_t { kForward, kBackward, kStep };

struct MemoryEstimate {
  bool is_sharded = false;
  MemoryUse peak;
  TrainingPhase peak_phase = TrainingPhase::kForward;
  int64_t phase_peaks[3] = {};  // the largest total in each phase

  void observe(TrainingPhase phase, const MemoryUse& use) {
    int64_t& largest = phase_peaks[static_cast<size_t>(phase)];
    largest = std::max(largest, use.total());
    if (use.total() <= peak.total()) return;
    peak = use;
    peak_phase = phase;
  }
};

// The bytes of the optimizer's state for a parameter of this shape and dtype.
using StateBytes = std::function<int64_t(const at::Tensor& parameter)>;

// The peak of a step that is not the first, on the rank with the most rows and the largest parts; gradients are set to
// none after each step. Parameters may be without memory, and of a prepared model parts. The settings are complete,
// also those of sharding; data_parallel_shard_size is set, and num_processes are the ranks that average gradients. Not
// included: preparing, temporary memory of operators and of compressed exchanges.
MemoryEstimate estimate_memory(const nn::ModulePtr& module, const EstimateMemorySettings& settings,
                               const StateBytes& state_bytes);

}  // namespace accel::parallel
