// SPDX-License-Identifier: Apache-2.0
// Arrival order: the order in which gradients first arrived, by which the buckets are filled anew, once and on all
// ranks as on rank 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/gradient_buffer.hpp"

namespace accel::parallel {

class ArrivalOrder {
 public:
  bool is_taken() const { return is_taken_; }
  void note(size_t number) { arrived_.push_back(number); }
  // Parameters of a static graph that never arrive come last.
  void note(const std::vector<size_t>& numbers) { arrived_.insert(arrived_.end(), numbers.begin(), numbers.end()); }
  // A rank without inputs has nothing to tell.
  void note_any(size_t num_parameters);
  void forget() { arrived_.clear(); }

  // Collective if anything has arrived: the buckets in the order of rank 0, with these limits in bytes.
  std::optional<BucketOrder> take(const std::vector<at::Tensor>& parameters, const std::vector<int64_t>& limits,
                                  const GradientClasses& classes, comm::Communicator& ranks);

 private:
  std::vector<size_t> arrived_;
  bool is_taken_ = false;
};

}  // namespace accel::parallel
