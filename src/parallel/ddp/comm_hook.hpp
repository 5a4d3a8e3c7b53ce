// Communication hooks of DDP: creates the hook that averages a gradient bucket over the ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>

#include "config/generated/settings.hpp"
#include "parallel/parallel_model.hpp"
#include "tensor/stateful.hpp"

namespace c10d {
class CommHookInterface;
class ProcessGroup;
}  // namespace c10d

namespace accel::parallel {

using CommHookPtr = std::shared_ptr<c10d::CommHookInterface>;
using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

CommHookPtr make_comm_hook(const DdpSettings& settings, const comm::Communicator& communicator);
CommHookPtr make_comm_hook(BucketCallback callback);

// The state of a hook across steps; null if it has none.
tensor::Stateful* memory_of(const CommHookPtr& hook);

}  // namespace accel::parallel
