// SPDX-License-Identifier: Apache-2.0
// A c10d Work that tells of its end without a future.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace accel::comm {

class NotifyingWork : public c10d::Work {
 public:
  using c10d::Work::Work;
  using OnEnd = std::function<void(const std::exception_ptr& error)>;

  // Once. Runs on the thread on which the call completes, or at once if it has; must not throw. By then the work has
  // let go of the call's tensors, which a future would keep as its value: who waits for the end may count on their
  // memory.
  virtual void on_end(OnEnd callback) = 0;
  // The tensors of all ranks, after a gather in place.
  virtual std::vector<at::Tensor> blocks() const { return {}; }
  // The length of the message, after a receive that may be shorter.
  virtual int64_t received_bytes() const { return 0; }
};

}  // namespace accel::comm
