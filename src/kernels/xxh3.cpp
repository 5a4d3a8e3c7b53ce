// SPDX-License-Identifier: Apache-2.0
#include "kernels/xxh3.hpp"

#include "kernels/instruction_set.hpp"

namespace accel::kernels {

const Xxh3& xxh3() {
  static const Xxh3 fastest = ACCEL_FASTEST(xxh3_kernels)();
  return fastest;
}

}  // namespace accel::kernels
