// The communication hook of DDP: c10d's interface of what averages a gradient bucket over the ranks.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>

namespace c10d {
class CommHookInterface;
class ProcessGroup;
}  // namespace c10d

namespace accel::parallel {

using CommHookPtr = std::shared_ptr<c10d::CommHookInterface>;
using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

}  // namespace accel::parallel
