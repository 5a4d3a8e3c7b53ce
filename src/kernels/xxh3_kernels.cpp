// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build); the library is one header.
#define XXH_INLINE_ALL
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false, in GCC's own header of AVX-512
#endif
#include <xxhash.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include "kernels/xxh3.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

XXH3_state_t* state_of(Xxh3State* state) { return reinterpret_cast<XXH3_state_t*>(state); }

Xxh3State* create() {
  XXH3_state_t* const state = XXH3_createState();
  if (state != nullptr) XXH3_64bits_reset(state);
  return reinterpret_cast<Xxh3State*>(state);
}

void release(Xxh3State* state) { XXH3_freeState(state_of(state)); }

void add(Xxh3State& state, const void* data, size_t size) {
  if (size > 0) XXH3_64bits_update(state_of(&state), data, size);
}

uint64_t value(const Xxh3State& state) { return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(&state)); }

}  // namespace

Xxh3 xxh3_kernels() { return {create, release, add, value}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
