// SPDX-License-Identifier: Apache-2.0
#include "comm/backend/queued_work.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "comm/backend/future_work.hpp"

namespace accel::comm {
namespace {

using Tensors = std::vector<at::Tensor>;

std::vector<c10::Device> devices_with_streams(const Tensors& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors)
    if (!tensor.is_cpu() && !tensor.is_meta() &&
        std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  return devices;
}

class QueuedWork final : public FutureWork {
 public:
  QueuedWork(Tensors outputs, const std::vector<c10::Device>& devices)
      : FutureWork(/*rank=*/-1, std::move(outputs), devices) {
    for (const c10::Device device : devices) {
      ends_.emplace_back(device.type());
      ends_.back().record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
    succeed();
  }

  // The future, which is complete, does not tell whether the devices have come to the end.
  bool isCompleted() override {
    return std::all_of(ends_.begin(), ends_.end(), [](const c10::Event& end) { return end.query(); });
  }

 private:
  std::vector<c10::Event> ends_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> work_or_queued(c10::intrusive_ptr<c10d::Work> work, const Tensors& outputs) {
  if (work) return work;
  return c10::make_intrusive<QueuedWork>(outputs, devices_with_streams(outputs));
}

}  // namespace accel::comm
