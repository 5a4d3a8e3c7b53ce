// SPDX-License-Identifier: Apache-2.0
// Parameter use: which parameters took part in a backward, on this rank and on any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::parallel {

class ParameterUse {
 public:
  ParameterUse(size_t num_parameters, std::shared_ptr<comm::Communicator> ranks);

  void note(size_t number) { used_[number] = 1; }
  // Collective: starts to count the ranks that have used each parameter.
  void start_count();
  // Where the backend has a stream, what this thread computes next waits instead.
  void wait();
  // True for all while nothing was counted.
  bool is_used_anywhere(size_t number);
  // Nothing is used in the next backward yet.
  void forget();

 private:
  std::shared_ptr<comm::Communicator> ranks_;
  std::vector<int32_t> used_;  // on this rank: 1
  at::Tensor counts_;          // over all ranks
  std::shared_ptr<comm::Work> counting_;
};

}  // namespace accel::parallel
