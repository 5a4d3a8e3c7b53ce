// SPDX-License-Identifier: Apache-2.0
// Timing of a matmul, for the autotuner.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace accel::kernels {

inline at::Tensor ones_of(int64_t rows, int64_t columns, bool transposed, at::ScalarType dtype) {
  return transposed ? at::ones({columns, rows}, dtype).t() : at::ones({rows, columns}, dtype);
}

// Seconds: the shortest of several runs, so that other load on the machine matters little.
template <typename Work>
double shortest_time(const Work& work) {
  using Clock = std::chrono::steady_clock;
  double shortest = std::numeric_limits<double>::max();
  const Clock::time_point end = Clock::now() + std::chrono::microseconds(400);
  do {
    const Clock::time_point begin = Clock::now();
    work();
    shortest = std::min(shortest, std::chrono::duration<double>(Clock::now() - begin).count());
  } while (Clock::now() < end);
  return shortest;
}

// Seconds of one run whose matrices are not in the caches of the core, as most in a training step: `evicting` is
// overwritten before, and is larger than those.
template <typename Work>
double uncached_time(const at::Tensor& evicting, const Work& work) {
  evicting.fill_(1);
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace accel::kernels
