// SPDX-License-Identifier: Apache-2.0
// The work of a call for which its backend gave none, which c10d allows: the call has ended, or is queued on the
// caller's current streams (NCCL with `asyncOp = false`).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <vector>

namespace c10d {
class Work;
}  // namespace c10d

namespace accel::comm {

// The given work; for null, one that is complete when the work that is now queued on the current streams of the
// tensors' devices is, and whose waits and future order the current stream behind it. Never null.
c10::intrusive_ptr<c10d::Work> work_or_queued(c10::intrusive_ptr<c10d::Work> work,
                                              const std::vector<at::Tensor>& outputs);

}  // namespace accel::comm
