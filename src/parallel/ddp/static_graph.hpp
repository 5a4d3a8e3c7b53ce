// SPDX-License-Identifier: Apache-2.0
// Static graph: how often each backward reaches each parameter, as its first backward has shown.
#pragma once

#include <cstdint>
#include <vector>

namespace accel::parallel {

class StaticGraph {
 public:
  explicit StaticGraph(size_t num_parameters) : visits_(num_parameters, 0), left_(num_parameters, 0) {}

  bool is_known() const { return is_known_; }
  // In the first backward, and at its end.
  void learn_visit(size_t number) { visits_[number] += 1; }
  void set_known() { is_known_ = true; }
  // The parameters that a backward does not reach.
  std::vector<size_t> unreached() const {
    std::vector<size_t> numbers;
    for (size_t number = 0; number < visits_.size(); number++)
      if (visits_[number] == 0) numbers.push_back(number);
    return numbers;
  }

  void begin_backward() { left_ = visits_; }
  // Whether this is the last visit in the backward.
  bool is_last_visit(size_t number) { return --left_[number] == 0; }

 private:
  std::vector<int64_t> visits_;
  std::vector<int64_t> left_;  // in the present backward
  bool is_known_ = false;
};

}  // namespace accel::parallel
