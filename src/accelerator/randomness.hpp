// SPDX-License-Identifier: Apache-2.0
// Randomness: the seeds of a training.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "state/state.hpp"

namespace accel::accelerator {

class Randomness {
 public:
  // `state` is that of the accelerator that has this.
  explicit Randomness(const state::State& state) : state_(state) {}
  Randomness(const Randomness&) = delete;

  // Seeds the default generators, plus the rank if device specific, and calls the registered callbacks.
  void set_seed(int64_t seed, bool device_specific) const;
  void add_seed_callback(std::function<void(int64_t)> seed) { callbacks_.push_back(std::move(seed)); }

 private:
  const state::State& state_;
  std::vector<std::function<void(int64_t)>> callbacks_;
};

}  // namespace accel::accelerator
