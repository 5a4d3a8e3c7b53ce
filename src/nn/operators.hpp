// Operators of our own, for LibTorch's dispatcher.
#pragma once

namespace accel::nn {

// At the first call. From then on "accel::linear_cross_entropy" is found like LibTorch's own.
void register_operators();

}  // namespace accel::nn
