// SPDX-License-Identifier: Apache-2.0
// Section 4: groups of ranks, which are states.
#include "comm/group.hpp"

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"

namespace accel::capi {
namespace {

template <typename Make>
accel_status_t make_group(const char* function, accel_state_t* state, accel_state_t** out, const Make& make) {
  return guarded(function, out, [&] {
    const auto& parent = *check(state, "state").accelerator;
    const auto& communicator = parent.state().communicator();
    auto group = std::make_shared<accelerator::Accelerator>(parent, make(*communicator));
    return group;
  });
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_group_create(accel_state_t* state, const int64_t* ranks, size_t n_ranks,
                                                 accel_state_t** out) {
  return make_group(__func__, state, out, [&](comm::Communicator& communicator) {
    return comm::create_group(communicator, read_array(ranks, n_ranks, "ranks"));
  });
}

ACCEL_FUNCTION accel_status_t accel_group_split(accel_state_t* state, int32_t color, int32_t key, accel_state_t** out) {
  return make_group(__func__, state, out,
                    [&](comm::Communicator& communicator) { return comm::split_group(communicator, color, key); });
}

ACCEL_FUNCTION accel_status_t accel_group_shrink(accel_state_t* state, int64_t wait_ms, accel_state_t** out) {
  return make_group(__func__, state, out, [&](comm::Communicator& communicator) {
    require(wait_ms >= 0, Status::kInvalidArgument, "wait_ms is ", wait_ms, "; expected 0 or more");
    return comm::shrink_group(communicator, std::chrono::milliseconds(wait_ms));
  });
}

}  // namespace accel::capi
