// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/files/content_hash.hpp"

#include <new>

namespace accel::checkpoint {

ContentHash::ContentHash() : state_(kernels::xxh3().create(), kernels::xxh3().release) {
  if (state_ == nullptr) throw std::bad_alloc();
}

void ContentHash::add(const void* data, size_t size) { kernels::xxh3().add(*state_, data, size); }

uint64_t ContentHash::value() const { return kernels::xxh3().value(*state_); }

uint64_t hash_of(const void* data, size_t size) {
  ContentHash hash;
  hash.add(data, size);
  return hash.value();
}

}  // namespace accel::checkpoint
