// SPDX-License-Identifier: Apache-2.0
// Host values: what of a step is decided on the host, and so stays in a recorded step until it is recorded again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accelerator/prepared_objects.hpp"
#include "state/state.hpp"

namespace accel::accelerator {

using PreparedOptimizers = std::vector<std::shared_ptr<PreparedOptimizer>>;

// The settings of optimizers, which tensors are their state, and the modes of the models.
class HostValues {
 public:
  HostValues(const PreparedObjects& prepared, const PreparedOptimizers& optimizers);
  bool operator==(const HostValues& other) const { return rates_ == other.rates_ && numbers_ == other.numbers_; }
  bool operator!=(const HostValues& other) const { return !(*this == other); }
  bool has_rates_of(const HostValues& other) const { return rates_ == other.rates_; }

 private:
  std::vector<double> rates_;  // that devices do not read
  std::vector<uint64_t> numbers_;
};

// From now on the updates of the library's fused optimizers read their learning rates on the device.
void make_device_rates(const PreparedOptimizers& optimizers);
// Before a step is done again: writes those that have changed.
void write_device_rates(const PreparedOptimizers& optimizers);

// kUnsupported, with the reason, for models whose ranks have work together that no recording leaves to them.
void require_recordable(const PreparedObjects& prepared, const state::State& state);
// kUnsupported, with the reason, for a step that a device cannot do again by itself.
void require_repeatable(const PreparedOptimizers& optimizers, const state::State& state);

}  // namespace accel::accelerator
