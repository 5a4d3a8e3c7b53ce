// SPDX-License-Identifier: Apache-2.0
// Shorter message: a receive that takes fewer bytes than it has memory for, so that the sender may say something else.
#pragma once

#include <c10/core/DeviceType.h>

namespace accel::comm {

class Communicator;

// Whether Collective::may_be_shorter is heeded for tensors of the device. The same on all ranks.
bool takes_shorter_messages(const Communicator& group, c10::DeviceType device);

}  // namespace accel::comm
