// SPDX-License-Identifier: Apache-2.0
// Differences between the LibTorch versions (2.11 to 2.13, which are tried, and to 2.15). No other code may check it.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

// 2.15 renamed the tensor collectives of c10d::Backend (all_gather_single instead of _allgather_base, ...).
#define ACCEL_TORCH_HAS_SINGLE_COLLECTIVES (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15)

// 2.13 counts the owners of an autograd::Node inside it; before, std::shared_ptr did.
#define ACCEL_TORCH_INTRUSIVE_NODES (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)

// 2.12 named the reduction of several tensors in c10d::OpType. It is only a label of the work: before, such work is
// just coalesced.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 12
#define ACCEL_TORCH_REDUCE_SCATTER_COALESCED REDUCE_SCATTER_TENSOR_COALESCED
#else
#define ACCEL_TORCH_REDUCE_SCATTER_COALESCED COALESCED
#endif

// 2.13 has graphs of any accelerator, in ATen/core/GraphImplInterface.h.
#define ACCEL_TORCH_HAS_GRAPHS (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)
