// SPDX-License-Identifier: Apache-2.0
// Registration of the library's own operators in LibTorch's dispatcher.
#pragma once

namespace accel::nn {

// Registers them at the first call; then "accel::linear_cross_entropy" is found like LibTorch's operators.
void register_operators();

}  // namespace accel::nn
