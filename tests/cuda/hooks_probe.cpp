// SPDX-License-Identifier: Apache-2.0
// Tells a Python program whether LibTorch has CUDA's own hooks: 1, or 0 for those that only refuse.
#include <ATen/detail/CUDAHooksInterface.h>

extern "C" __attribute__((visibility("default"))) int cuda_hooks_are_real() {
  return at::detail::getCUDAHooks().isBuilt() ? 1 : 0;
}
