// SPDX-License-Identifier: Apache-2.0
// The message of a program that dies because the host touched memory of a device.
#pragma once

namespace simulated_device {

// Writes the message and leaves the rest to the handler that was there before.
void report_host_access();

}  // namespace simulated_device
