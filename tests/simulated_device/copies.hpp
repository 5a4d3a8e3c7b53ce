// SPDX-License-Identifier: Apache-2.0
// Copies between host and devices.
#pragma once

namespace torch {
class Library;
}

namespace simulated_device {

void register_copies(torch::Library& library);

}  // namespace simulated_device
