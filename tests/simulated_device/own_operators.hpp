// SPDX-License-Identifier: Apache-2.0
// Operators that LibTorch computes otherwise on the CPU than on other devices: here as on the CPU, so that the bits are
// the same.
#pragma once

namespace torch {
class Library;
}

namespace simulated_device {

void register_own_operators(torch::Library& library);

}  // namespace simulated_device
