// SPDX-License-Identifier: Apache-2.0
// Format dispatch: calls a kernel with the number type (stored_number.hpp) of a format. For kernels that are compiled
// once for each instruction set.
#pragma once

#include "kernels/update/element_span.hpp"
#include "kernels/update/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

// Calls work(number) with a BFloat16, a Half or a Plain<float>, the formats that are computed in float32.
template <typename Work>
inline void with_number(Format format, const Work& work) {
  switch (format) {
    case Format::kBFloat16:
      return work(BFloat16());
    case Format::kHalf:
      return work(Half());
    default:
      return work(Plain<float>());
  }
}

}  // namespace
}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
