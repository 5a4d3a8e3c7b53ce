// SPDX-License-Identifier: Apache-2.0
// The vectorised reductions. The source is compiled once per instruction set, each time into its own namespace.
#pragma once

#include <cstdint>

namespace accel::comm::ucx {

enum class Element : uint8_t {
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kHalf,
  kBFloat16,
  kFloat,
  kDouble,
};

// kScaledSum is the sum times a factor, of floating-point numbers only.
enum class ReduceOp : uint8_t { kSum, kMean, kScaledSum, kProduct, kMin, kMax, kAnd, kOr, kXor, kNone };

// `inputs` holds one buffer a rank, in rank order; `output` may be one of them. `number` is what a mean is divided by,
// and a scaled sum multiplied with; others ignore it.
using ReduceFunction = void (*)(void* output, const void* const* inputs, int ranks, int64_t count, double number);

// Null where there is none.
namespace baseline {
ReduceFunction find_kernel(Element element, ReduceOp reduction);
}
namespace avx2 {
ReduceFunction find_kernel(Element element, ReduceOp reduction);
}
namespace avx512 {
ReduceFunction find_kernel(Element element, ReduceOp reduction);
}

}  // namespace accel::comm::ucx
