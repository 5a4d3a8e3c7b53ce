// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/key_buffer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace accel::nn {
namespace {

constexpr int64_t kLeastRoom = 32;  // positions

// The memory of a buffer [batch, heads, capacity, size].
struct KeyMemory {
  KeyMemory(at::Tensor buffer, int64_t positions) : memory(std::move(buffer)), used(positions) {}

  const at::Tensor memory;
  std::atomic<int64_t> used;  // positions
};

void release(void* context) { delete static_cast<KeyMemory*>(context); }

// Null: the tensor is not what a buffer has from the first position on.
KeyMemory* memory_of(const at::Tensor& positions) {
  if (!positions.has_storage() || positions.storage_offset() != 0 || positions.dim() != 4) return nullptr;
  auto* const found = positions.storage().data_ptr().cast_context<KeyMemory>(&release);
  if (found == nullptr) return nullptr;
  const at::Tensor whole = found->memory.narrow(2, 0, positions.size(2));
  return whole.sizes() == positions.sizes() && whole.strides() == positions.strides() ? found : nullptr;
}

// Takes the room behind `earlier`, if it is there and nobody has taken it.
bool take_room(const at::Tensor& earlier, int64_t positions) {
  KeyMemory* const memory = memory_of(earlier);
  int64_t used = earlier.size(2);
  return memory != nullptr && used + positions <= memory->memory.size(2) &&
         earlier.is_inference() == c10::InferenceMode::is_enabled() &&
         memory->used.compare_exchange_strong(used, used + positions);
}

// A copy with room behind it, of which so many positions are taken.
at::Tensor copy_with_room(const at::Tensor& earlier, int64_t positions) {
  const int64_t length = earlier.size(2) + positions;
  std::vector<int64_t> sizes = earlier.sizes().vec();
  sizes[2] = length + std::max(length / 2, kLeastRoom);
  auto owned = std::make_unique<KeyMemory>(at::empty(sizes, earlier.options()), length);
  const at::Tensor& memory = owned->memory;
  void* const data = memory.mutable_data_ptr();
  const auto bytes = static_cast<size_t>(memory.nbytes());
  const at::Device device = memory.device();
  c10::Storage storage(c10::Storage::use_byte_size_t{}, bytes, c10::DataPtr(data, owned.release(), &release, device),
                       /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor shared = at::empty({0}, earlier.options());
  shared.set_(std::move(storage), 0, sizes, {});
  shared.narrow(2, 0, earlier.size(2)).copy_(earlier);
  return shared;
}

bool can_append(const at::Tensor& earlier, const at::Tensor& added) {
  const bool has_graph = at::GradMode::is_enabled() && (earlier.requires_grad() || added.requires_grad());
  // Devices from outside may have storages of their own.
  const bool has_known_storage = !earlier.is_meta() && !earlier.is_privateuseone();
  if (has_graph || !has_known_storage || earlier.dim() != 4 || added.dim() != 4) return false;
  return earlier.options().type_equal(added.options()) && earlier.size(0) == added.size(0) &&
         earlier.size(1) == added.size(1) && earlier.size(3) == added.size(3);
}

}  // namespace

at::Tensor append_positions(const at::Tensor& earlier, const at::Tensor& added) {
  if (!can_append(earlier, added)) return at::cat({earlier, added}, 2);
  const int64_t begin = earlier.size(2), positions = added.size(2);
  const at::Tensor room = take_room(earlier, positions) ? earlier : copy_with_room(earlier, positions);
  const at::Tensor& memory = room.storage().data_ptr().cast_context<KeyMemory>(&release)->memory;
  const at::Tensor whole = room.as_strided(memory.sizes(), memory.strides());
  whole.narrow(2, begin, positions).copy_(added);
  return whole.narrow(2, 0, begin + positions);
}

}  // namespace accel::nn
