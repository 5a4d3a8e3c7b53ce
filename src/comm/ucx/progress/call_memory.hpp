// SPDX-License-Identifier: Apache-2.0
// Memory that UCX accesses for the calls of a group. It must stay after a failure: until the engine ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <new>
#include <vector>

#include "comm/ucx/algorithms/session.hpp"

namespace accel::comm::ucx {

struct CallMemory {
  Session::Buffers buffers;
  std::vector<at::Tensor> abandoned;  // of calls that failed

  void keep(at::Tensor memory) noexcept {
    try {
      abandoned.push_back(memory);
    } catch (const std::bad_alloc&) {
      static_cast<void>(memory.unsafeReleaseTensorImpl());  // leaked: there is no memory to record it
    }
  }
};

}  // namespace accel::comm::ucx
