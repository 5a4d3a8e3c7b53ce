// SPDX-License-Identifier: Apache-2.0
// Transposition of blocks of float32 in vector registers. For kernels that are compiled once for each instruction set,
// see stored_number.hpp.
#pragma once

#include "kernels/attention/exponential.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

using FloatLanes = Real<float>::Lanes;

// Exchanges the off-diagonal blocks of kStep by kStep elements that rows `a` and `b`, kStep rows apart, have part in.
template <int kStep>
inline void exchange_blocks(FloatLanes& a, FloatLanes& b) {
  typedef int32_t Indices __attribute__((vector_size(kLanes * sizeof(int32_t))));
  constexpr int32_t kOther = kLanes;  // of the second operand of a shuffle
  Indices low{}, high{};
  for (int32_t lane = 0; lane < kLanes; lane++) {
    const bool is_high = (lane & kStep) != 0;
    low[lane] = is_high ? kOther + lane - kStep : lane;
    high[lane] = is_high ? kOther + lane : lane + kStep;
  }
#ifdef __clang__
  FloatLanes first, second;
  for (int lane = 0; lane < kLanes; lane++) {
    first[lane] = low[lane] < kOther ? a[low[lane]] : b[low[lane] - kOther];
    second[lane] = high[lane] < kOther ? a[high[lane]] : b[high[lane] - kOther];
  }
#else
  const FloatLanes first = __builtin_shuffle(a, b, low), second = __builtin_shuffle(a, b, high);
#endif
  a = first;
  b = second;
}

template <int kStep>
inline void exchange_all(FloatLanes* rows) {
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; row++)
    if ((row & kStep) == 0) exchange_blocks<kStep>(rows[row], rows[row + kStep]);
}

// kLanes rows of as many elements, in place.
inline void transpose_lanes(FloatLanes* rows) {
  exchange_all<1>(rows);
  exchange_all<2>(rows);
  exchange_all<4>(rows);
  exchange_all<8>(rows);
}

}  // namespace
}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
