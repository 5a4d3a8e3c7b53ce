// Host values: what of a step is decided on the host, and so stays in a recorded step until it is recorded again.
#pragma once

#include <cstdint>
#include <vector>

#include "accelerator/prepared_objects.hpp"
#include "state/state.hpp"

namespace accel::accelerator {

// The settings of the optimizers, which tensors are their state, and the modes of the models.
class HostValues {
 public:
  explicit HostValues(const PreparedObjects& prepared);
  bool operator==(const HostValues& other) const {
    return rates_ == other.rates_ && settings_ == other.settings_ && numbers_ == other.numbers_;
  }
  bool operator!=(const HostValues& other) const { return !(*this == other); }
  bool has_rates_of(const HostValues& other) const { return rates_ == other.rates_; }

 private:
  std::vector<double> rates_;  // that devices do not read
  std::vector<double> settings_;
  std::vector<uint64_t> numbers_;
};

// From the first call on, the updates of the library's fused optimizers read their learning rates on the device. Before
// each step, also one that is done again.
void write_device_rates(const PreparedObjects& prepared);

// kUnsupported where the host has to hear from the device after each step.
void require_no_answers(const PreparedObjects& prepared);

// kUnsupported, with the reason, for a step that a device cannot do again by itself.
void require_repeatable(const PreparedObjects& prepared, const state::State& state);

}  // namespace accel::accelerator
