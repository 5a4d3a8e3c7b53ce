// SPDX-License-Identifier: Apache-2.0
// LibTorch's threads for the backwards of accelerators.
//
// LibTorch starts them once in a process, in the first backward, for the devices that are there, and for the engine of
// autograd that runs it. A device whose plugin comes later has no thread, and neither have any devices under the engine
// that Python's torch puts in the place of LibTorch's own: their backwards end in an internal assertion of LibTorch.
#pragma once

namespace accel::tensor {

// Gives the present engine the threads of the devices that are loaded, if it lacks them. Before a backward, and when a
// device is chosen, so that backwards of the application have them too.
void start_device_threads();

}  // namespace accel::tensor
