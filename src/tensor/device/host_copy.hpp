// SPDX-License-Identifier: Apache-2.0
// Host copy: a tensor of an accelerator in the memory of the host, until it is needed again. Copies of both directions
// are in the order of the device's other work, and do not wait where the device can pin memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <memory>

namespace accel::tensor {

class HostCopy {
 public:
  // The tensor is on an accelerator, and dense.
  explicit HostCopy(const at::Tensor& tensor);
  static bool is_possible(const at::Tensor& tensor);

  // May be written for some time yet: only for on_device(), and to be saved.
  const at::Tensor& host() const { return host_; }
  // On the device again. `host` is host(), or the same that was saved elsewhere.
  at::Tensor on_device(const at::Tensor& host) const;
  void forget_host() { host_.reset(); }

 private:
  c10::Device device_;
  bool pinned_;
  at::Tensor host_;
  std::shared_ptr<c10::Event> written_;  // null: it is
};

}  // namespace accel::tensor
