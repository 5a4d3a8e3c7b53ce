// SPDX-License-Identifier: Apache-2.0
#include "comm/backend/watched_call.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace accel::comm {

WatchedCall::WatchedCall(WorkPointer work, std::vector<at::Tensor> tensors, std::optional<c10::Device> device)
    : device_(device), work_(std::move(work)), tensors_(std::move(tensors)) {}

WatchedCall::WorkPointer WatchedCall::work() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return work_;
}

void WatchedCall::order_stream() {
  const WorkPointer work = this->work();
  if (work) work->wait();
  if (!device_) return;
  const c10::impl::VirtualGuardImpl guard(device_->type());
  const c10::Stream stream = guard.getStream(*device_);
  std::vector<at::Tensor> tensors;  // released without the mutex
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  if (ordered_) return ordered_->block(stream);
  ordered_.emplace(device_->type());
  ordered_->record(stream);
  // Memory of another stream is free only when this one is done with it.
  for (const at::Tensor& tensor : tensors_)
    if (tensor.device().type() == device_->type()) guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  tensors.swap(tensors_);
  work_.reset();
}

bool WatchedCall::is_complete() const {
  const WorkPointer work = this->work();
  if (work) return work->isCompleted();
  const std::lock_guard<std::mutex> lock(mutex_);
  return ordered_->query();
}

void WatchedCall::finish() const {
  const WorkPointer work = this->work();
  if (!work) return;
  if (const auto error = work->exception()) std::rethrow_exception(error);
  work->wait();
}

bool WatchedCall::is_late(const std::exception_ptr& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!ordered_) error_ = error;
  return ordered_.has_value();
}

}  // namespace accel::comm
