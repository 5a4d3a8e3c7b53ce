// SPDX-License-Identifier: Apache-2.0
// A backend plugin that moves nothing, for tests of who is asked: tensors of the device "meta" have no elements.
#include <atomic>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "base/torch_compat.hpp"
#include "comm/backend/backend_plugin.hpp"

namespace {

// Done after it was looked at a few times, as what a device does; never done for a tensor of 13 elements.
class StubWork final : public c10d::Work {
 public:
  explicit StubWork(int looks) : looks_(looks) {}
  bool isCompleted() override { return looks_ > 0 && --looks_ == 0; }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }

 private:
  int looks_;
};

class StubBackend final : public c10d::Backend {
 public:
  using Backend::Backend;

  const std::string getBackendName() const override { return "stub"; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& /*options*/) override {
    sequence_++;
    return c10::make_intrusive<StubWork>(tensors[0].numel() == 13 ? 0 : 5);
  }
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
  c10::intrusive_ptr<c10d::Work> all_gather_single(at::Tensor& /*output*/, at::Tensor& /*input*/,
#else
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& /*output*/, at::Tensor& /*input*/,
#endif
                                                   const c10d::AllgatherOptions& /*options*/) override {
    sequence_++;
    return {};
  }

 private:
  std::atomic<uint64_t> sequence_{1000};  // so that its operations are known by their numbers
};

}  // namespace

extern "C" __attribute__((visibility("default"))) c10d::Backend* accel_create_backend(
    const accel::comm::BackendArguments* arguments, char* /*error*/, size_t /*error_size*/) {
  return c10::make_intrusive<StubBackend>(arguments->rank, arguments->size).release();
}
