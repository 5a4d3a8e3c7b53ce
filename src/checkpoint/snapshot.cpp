// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/snapshot.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "base/error.hpp"
#include "comm/backend/communication_stream.hpp"
#include "kernels/parallel.hpp"
#include "os/system_error.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/device/page_locked.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr size_t kCopyAlignment = 64;             // of copies; a multiple of each element's size
constexpr size_t kCopiedChunk = size_t{4} << 20;  // copied by one thread at a time

size_t align_copy(size_t bytes) { return (bytes + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment; }

struct ByteRange {
  size_t begin;
  size_t end;
};

// The bytes of its storage that a tensor shows.
ByteRange viewed_bytes(const at::Tensor& tensor) {
  const size_t item = tensor.itemsize();
  const size_t begin = static_cast<size_t>(tensor.storage_offset()) * item;
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); dim++) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return {begin, begin + (static_cast<size_t>(last) + 1) * item};
}

// The part of a storage that is copied.
struct Part {
  c10::Storage source;
  ByteRange bytes;
  c10::Storage copy;

  size_t size() const { return bytes.end - bytes.begin; }
};

class Parts {
 public:
  void add(const at::Tensor& tensor) {
    if (!is_copied(tensor)) return;
    ByteRange bytes = viewed_bytes(tensor);
    bytes.begin -= bytes.begin % kCopyAlignment;  // so that all elements of the part stay aligned
    const auto [found, is_new] = index_.try_emplace(tensor.storage().unsafeGetStorageImpl(), parts_.size());
    if (is_new) {
      parts_.push_back({tensor.storage(), bytes, {}});
      return;
    }
    ByteRange& known = parts_[found->second].bytes;
    known = {std::min(known.begin, bytes.begin), std::max(known.end, bytes.end)};
  }

  // The view of the copy. Tensors without a storage or elements, and lazily negated or conjugated ones, are copied on
  // their own.
  at::Tensor copy_of(const at::Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    if (!is_copied(tensor)) return tensor.detach().clone();
    const Part& part = parts_[index_.at(tensor.storage().unsafeGetStorageImpl())];
    const auto offset = static_cast<int64_t>((viewed_bytes(tensor).begin - part.bytes.begin) / tensor.itemsize());
    return at::empty({0}, tensor.options().device(part.copy.device()))
        .set_(part.copy, offset, tensor.sizes(), tensor.strides());
  }

  std::vector<Part>& all() { return parts_; }

 private:
  static bool is_copied(const at::Tensor& tensor) {
    return tensor.defined() && tensor.layout() == at::kStrided && tensor.has_storage() && tensor.numel() > 0 &&
           !tensor.is_conj() && !tensor.is_neg() && !tensor.is_quantized() && !tensor.is_meta();
  }

  std::vector<Part> parts_;
  std::unordered_map<const c10::StorageImpl*, size_t> index_;
};

// Null for what is neither a tensor nor a chunk of one.
const at::Tensor* tensor_of(const c10::IValue& leaf) {
  if (const tensor::TensorChunk* const chunk = tensor::chunk_of(leaf)) return &chunk->data;
  return leaf.isTensor() ? &leaf.toTensor() : nullptr;
}

void keep_tensor(void* tensor) { delete static_cast<at::Tensor*>(tensor); }

// A part of `memory`, which it keeps alive.
c10::Storage storage_in(const at::Tensor& memory, size_t offset, size_t size) {
  auto owner = std::make_unique<at::Tensor>(memory);
  char* const data = static_cast<char*>(memory.mutable_data_ptr()) + offset;
  return {c10::Storage::use_byte_size_t(), size, c10::DataPtr(data, owner.release(), &keep_tensor, memory.device())};
}

// `freed` bytes were those of the last copies: LibTorch's allocator keeps them, and has them for the next ones.
std::optional<int64_t> free_memory(c10::Device device, int64_t freed) {
  try {
    const tensor::DeviceMemory memory = tensor::device_memory(device);
    if (!memory.free) return std::nullopt;
    return *memory.free + std::min(freed, memory.reserved - memory.allocated);
  } catch (const Error&) {  // its plugin counts no memory
    return std::nullopt;
  }
}

// Places the copies of the parts that `belongs` accepts in one tensor, which `allocate` makes.
template <typename Belongs, typename Allocate>
std::vector<Part*> place(std::vector<Part>& parts, const Belongs& belongs, const Allocate& allocate) {
  std::vector<Part*> placed;
  size_t total = 0;
  for (Part& part : parts) {
    if (!belongs(part)) continue;
    placed.push_back(&part);
    total += align_copy(part.size());
  }
  if (placed.empty()) return placed;
  const at::Tensor memory = allocate(total);
  size_t offset = 0;
  for (Part* part : placed) {
    part->copy = storage_in(memory, offset, part->size());
    offset += align_copy(part->size());
  }
  return placed;
}

// Not of the allocator, whose memory asks for huge pages: to find them for some GiB, the kernel moves other pages about
// for seconds, and the first snapshot waits for it. Small pages are there at once.
at::Tensor memory_of_small_pages(size_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) fail_system(Status::kOutOfMemory, "allocate", text("a snapshot of ", bytes, " bytes"));
  return at::from_blob(
      data, {static_cast<int64_t>(bytes)}, [bytes](void* mapped) { ::munmap(mapped, bytes); }, at::kByte);
}

void copy_on_host(const std::vector<Part*>& parts) {
  struct Chunk {
    char* to;
    const char* from;
    size_t size;
  };
  std::vector<Chunk> chunks;
  for (const Part* part : parts) {
    const char* const from = static_cast<const char*>(part->source.data()) + part->bytes.begin;
    char* const to = static_cast<char*>(part->copy.mutable_data());
    for (size_t done = 0; done < part->size(); done += kCopiedChunk)
      chunks.push_back({to + done, from + done, std::min(kCopiedChunk, part->size() - done)});
  }
  kernels::parallel_for(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const Chunk& chunk = chunks[static_cast<size_t>(i)];
      std::memcpy(chunk.to, chunk.from, chunk.size);
    }
  });
}

at::Tensor bytes_in(const c10::Storage& storage, size_t begin, size_t size) {
  return at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device()))
      .set_(storage, static_cast<int64_t>(begin), {static_cast<int64_t>(size)}, {1});
}

// Places the copies of a device's parts on that device; returns what there is too little of.
std::string place_on_device(std::vector<Part>& parts, c10::Device device, std::optional<int64_t> given, int64_t& last) {
  const auto on_device = [device](const Part& part) { return part.source.device() == device; };
  int64_t needed = 0;
  for (const Part& part : parts)
    if (on_device(part)) needed += static_cast<int64_t>(align_copy(part.size()));
  std::optional<int64_t> most = given;
  if (!most) {
    const std::optional<int64_t> free = free_memory(device, last);
    if (!free) return text(needed, " bytes of memory of ", device.str(), ", which does not tell how many are free");
    most = *free / 2;
  }
  if (needed > *most)
    return text(needed, " bytes of memory of ", device.str(), " and may take ", *most,
                given ? "" : ", half of what is free");
  try {
    place(parts, on_device, [device](size_t bytes) {
      return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
    });
  } catch (const c10::OutOfMemoryError&) {
    return text(needed, " bytes of memory of ", device.str(), ", which has no such part free");
  }
  last = needed;
  return "";
}

}  // namespace

void Snapshot::begin_to_read() const {
  for (const c10::Event& event : copied) event.synchronize();
  for (const c10::Device device : devices)
    if (const auto stream = comm::find_pool_stream(device))
      c10::impl::VirtualGuardImpl(device.type()).exchangeStream(*stream);
}

Snapshot SnapshotMemory::take(const std::vector<c10::IValue>& values, std::optional<int64_t> device_bytes) {
  Parts parts;
  for (const c10::IValue& value : values)
    tree::for_each_leaf(value, [&](const c10::IValue& leaf) {
      if (const at::Tensor* const tensor = tensor_of(leaf)) parts.add(*tensor);
    });

  Snapshot snapshot;
  for (const Part& part : parts.all()) {
    const c10::Device device = part.source.device();
    const bool is_known = std::find(snapshot.devices.begin(), snapshot.devices.end(), device) != snapshot.devices.end();
    if (!device.is_cpu() && !is_known) snapshot.devices.push_back(device);
    snapshot.bytes += part.size();
  }
  for (const c10::Device device : snapshot.devices) {
    // Objects that LibTorch makes with its first page-locked memory live longer than a writer that is started later.
    tensor::empty_on_host({0}, at::TensorOptions().dtype(at::kByte).pinned_memory(tensor::can_pin(device.type())));
    snapshot.obstacle = place_on_device(parts.all(), device, device_bytes, on_devices_[device]);
    if (!snapshot.obstacle.empty()) return snapshot;
  }

  const auto on_host = [](const Part& part) { return part.source.device().is_cpu(); };
  copy_on_host(place(parts.all(), on_host, [this](size_t bytes) {
    const bool is_free = host_.defined() && host_.use_count() == 1;
    if (!is_free || static_cast<size_t>(host_.numel()) < bytes) {
      if (is_free) host_ = at::Tensor();  // before the new one is there
      host_ = memory_of_small_pages(bytes);
    }
    return host_;
  }));

  for (const Part& part : parts.all())
    if (!part.source.device().is_cpu())
      bytes_in(part.copy, 0, part.size())
          .copy_(bytes_in(part.source, part.bytes.begin, part.size()), /*non_blocking=*/true);

  for (const c10::IValue& value : values)
    snapshot.values.push_back(tree::map_leaves(value, [&](const c10::IValue& leaf) {
      const at::Tensor* const tensor = tensor_of(leaf);
      if (tensor == nullptr) return leaf;
      const tensor::TensorChunk* const chunk = tensor::chunk_of(leaf);
      return chunk == nullptr ? c10::IValue(parts.copy_of(*tensor))
                              : tensor::chunk_value(parts.copy_of(*tensor), chunk->placement);
    }));
  for (const c10::Device device : snapshot.devices) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    snapshot.copied.emplace_back(device.type());
    snapshot.copied.back().record(guard.getStream(device));
  }
  return snapshot;
}

}  // namespace accel::checkpoint
