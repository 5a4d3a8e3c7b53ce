// Backend wrapper for the gradient reducer and communication hooks: records their calls in the flight record, and posts
// them in order. A call has a work, also where the backend gives none.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

class RecordedBackend final : public c10d::Backend {
 public:
  RecordedBackend(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<GroupInfo> group);

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;

  at::Tensor allocateTensor(long size, at::TensorOptions options) override {  // NOLINT(google-runtime-int): c10d's type
    return backend_->allocateTensor(size, options);
  }
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return backend_->supportsTensorAlloc(device); }
  const std::string getBackendName() const override { return backend_->getBackendName(); }
  uint64_t getSequenceNumberForGroup() override { return backend_->getSequenceNumberForGroup(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return backend_->getBackendOptions(); }

 private:
  template <typename Call>
  c10::intrusive_ptr<c10d::Work> record(const char* operation, const std::vector<at::Tensor>& tensors,
                                        const Call& call);

  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::shared_ptr<GroupInfo> group_;
};

}  // namespace accel::comm
