// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build); the library is one header.
#define XXH_INLINE_ALL
#if defined(__GNUC__) && !defined(__clang__)
// Both are false, in GCC's own header of AVX-512, for what is inlined below.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <xxhash.h>

#include "kernels/digest128.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {

Digest128 digest128(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.low64, hash.high64};
}

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
