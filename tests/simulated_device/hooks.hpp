// SPDX-License-Identifier: Apache-2.0
// What LibTorch asks an accelerator in general: generators, pinned memory, whether it is there.
#pragma once

namespace simulated_device {

void register_hooks();

}  // namespace simulated_device
