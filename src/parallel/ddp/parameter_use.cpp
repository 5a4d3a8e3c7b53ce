#include "parallel/ddp/parameter_use.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

namespace accel::parallel {

ParameterUse::ParameterUse(size_t num_parameters, std::shared_ptr<comm::Communicator> ranks)
    : ranks_(std::move(ranks)), used_(num_parameters, 0) {}

ParameterUse::~ParameterUse() = default;

void ParameterUse::start_count() {
  counts_ = at::tensor(used_, at::kInt).to(ranks_->device());
  std::vector<at::Tensor> tensors{counts_};
  const auto backend = ranks_->process_group()->getBackend(counts_.device().type());
  counting_ = backend->allreduce(tensors, c10d::AllreduceOptions());
}

void ParameterUse::wait() {
  if (const auto counting = std::exchange(counting_, nullptr)) counting->wait();
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
