#include "checkpoint/files/content_hash.hpp"

#include <algorithm>
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

uint64_t hash_of(const MappedFile& file) {
  constexpr size_t kWindow = size_t{16} << 20;  // that is in memory at once
  ContentHash hash;
  for (size_t done = 0; done < file.size(); done += kWindow) {
    const size_t size = std::min(kWindow, file.size() - done);
    hash.add(file.data() + done, size);
    forget_pages(file.data() + done, size);
  }
  return hash.value();
}

}  // namespace accel::checkpoint
