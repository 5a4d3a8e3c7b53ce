// SPDX-License-Identifier: Apache-2.0
// Job ranks: the numbers in the job that the ranks of a group have. Errors name ranks by them.
#pragma once

#include <utility>
#include <vector>

namespace accel::comm::ucx {

class JobRanks {
 public:
  JobRanks() = default;  // of a group of the whole job
  JobRanks(std::vector<int> numbers, int own) : numbers_(std::move(numbers)), own_(own) {}

  int own() const { return own_; }

  int operator[](int rank) const { return numbers_.empty() ? rank : numbers_[static_cast<size_t>(rank)]; }
  std::vector<int> operator[](std::vector<int> ranks) const {
    for (int& rank : ranks) rank = (*this)[rank];
    return ranks;
  }

 private:
  std::vector<int> numbers_;
  int own_ = 0;
};

}  // namespace accel::comm::ucx
