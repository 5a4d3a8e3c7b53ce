// SPDX-License-Identifier: Apache-2.0
// Graphs of a device: LibTorch's interface for what a stream records and does again.
#pragma once

namespace simulated_device {

// Nothing for a LibTorch without that interface.
void register_graphs();

}  // namespace simulated_device
