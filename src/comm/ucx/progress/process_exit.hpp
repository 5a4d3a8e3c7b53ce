// SPDX-License-Identifier: Apache-2.0
// The exit of the process while groups are open: UCX is being torn down, so their threads must not call it any more.
#pragma once

namespace accel::comm::ucx {

// Notices the exit from now on. False if that is not possible.
bool watch_process_exit();
// Does not return once the process exits.
void stop_if_process_exits();

}  // namespace accel::comm::ucx
