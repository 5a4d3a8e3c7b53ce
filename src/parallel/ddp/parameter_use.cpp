// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/parameter_use.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

namespace accel::parallel {

ParameterUse::ParameterUse(size_t num_parameters, std::shared_ptr<comm::Communicator> ranks)
    : ranks_(std::move(ranks)), used_(num_parameters, 0) {}

void ParameterUse::start_count() {
  counts_ = at::tensor(used_, at::kInt).to(ranks_->device());
  counting_ = ranks_->start(comm::Collective::all_reduce(counts_, comm::ReduceOp::kSum));
}

void ParameterUse::wait() {
  if (const auto counting = std::exchange(counting_, nullptr)) counting->synchronize();
}

bool ParameterUse::is_used_anywhere(size_t number) {
  if (used_[number] != 0 || !counts_.defined()) return true;
  wait();
  if (!counts_.is_cpu()) counts_ = counts_.cpu();
  return counts_.const_data_ptr<int32_t>()[number] != 0;
}

void ParameterUse::forget() {
  std::fill(used_.begin(), used_.end(), 0);
  counts_.reset();
}

}  // namespace accel::parallel
