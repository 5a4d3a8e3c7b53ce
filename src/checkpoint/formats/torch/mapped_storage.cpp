// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/mapped_storage.hpp"

#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace accel::checkpoint {
namespace {

// Keeps a mapping alive for a storage. Not a std::function: LibTorch would end the process if it had no memory to copy
// it.
using Owner = std::shared_ptr<const MappedFile>;
void release_owner(void* owner) { std::default_delete<Owner>()(static_cast<Owner*>(owner)); }

}  // namespace

at::DataPtr mapped_data(const std::shared_ptr<const MappedFile>& file, std::string_view bytes, size_t alignment) {
  if (bytes.empty()) return {nullptr, at::kCPU};
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0) {
    char* const data = file->data() + (bytes.data() - file->data());  // the mapping is writable
    return {data, std::make_unique<Owner>(file).release(), release_owner, at::kCPU};
  }
  at::DataPtr copy = c10::GetCPUAllocator()->allocate(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return copy;
}

at::Storage fixed_storage(at::DataPtr data, size_t bytes) {
  return {c10::Storage::use_byte_size_t(), bytes, std::move(data), /*allocator=*/nullptr, /*resizable=*/false};
}

}  // namespace accel::checkpoint
