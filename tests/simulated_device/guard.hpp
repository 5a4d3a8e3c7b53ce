// SPDX-License-Identifier: Apache-2.0
// Current device, streams and events, for LibTorch.
#pragma once

namespace simulated_device {

void register_guard();

}  // namespace simulated_device
