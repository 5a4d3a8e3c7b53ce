// SPDX-License-Identifier: Apache-2.0
// Makes the communication hooks of DDP.
#pragma once

#include "config/generated/settings/prepare/ddp.hpp"
#include "parallel/ddp/comm_hook.hpp"
#include "parallel/gradient_exchange.hpp"
#include "tensor/stateful.hpp"

namespace accel::parallel {

CommHookPtr make_comm_hook(const DdpSettings& settings, const CommunicatorPtr& ranks);
CommHookPtr make_comm_hook(BucketCallback callback);

// The state of a hook across steps; null if it has none.
tensor::Stateful* memory_of(const CommHookPtr& hook);

}  // namespace accel::parallel
