// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/streams/block_memory.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/parallel.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/device/page_locked.hpp"

namespace accel::bigmodel {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHostPartBytes = int64_t{16} << 20;
constexpr size_t kHostParts = 4;
constexpr int64_t kCopiedChunk = int64_t{1} << 20;  // by one thread at a time

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Elements of the source, converted, at `to`.
void copy_elements(const OffloadedTensor& from, int64_t begin, int64_t elements, char* to) {
  const at::Tensor& source = from.source();
  const auto size = static_cast<int64_t>(source.element_size());
  auto* const data = static_cast<char*>(source.data_ptr()) + begin * size;
  if (source.scalar_type() == from.dtype()) {
    // One thread copies several times slower than a link to a device takes it.
    const int64_t bytes = elements * size;
    kernels::parallel_for((bytes + kCopiedChunk - 1) / kCopiedChunk, 1, [&](int64_t first, int64_t last) {
      const int64_t start = first * kCopiedChunk;
      std::memcpy(to + start, data + start, static_cast<size_t>(std::min(bytes, last * kCopiedChunk) - start));
    });
    return;
  }
  const at::Tensor some = at::from_blob(data, {elements}, source.options());
  at::from_blob(to, {elements}, at::TensorOptions().dtype(from.dtype())).copy_(some);
}

// The tensor at an offset of the buffer.
at::Tensor tensor_in(const at::Tensor& buffer, int64_t offset, const OffloadedTensor& like) {
  at::Tensor tensor = at::empty({0}, buffer.options().dtype(like.dtype()));
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(buffer.storage());
  impl->set_sizes_contiguous(like.source().sizes());
  impl->set_storage_offset(offset / static_cast<int64_t>(c10::elementSize(like.dtype())));
  return tensor;
}

std::optional<comm::CommunicationStream> copy_stream(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  const std::optional<c10::Stream> stream = comm::find_pool_stream(device);
  return stream ? std::optional<comm::CommunicationStream>(*stream) : std::nullopt;
}

}  // namespace

int64_t buffer_bytes(const Block& block) {
  int64_t bytes = 0;
  for (const auto& tensor : block.tensors) bytes += aligned(tensor->bytes());
  return bytes;
}

BlockUploader::BlockUploader(c10::Device device)
    : device_(device), side_(copy_stream(device)), pinned_(!device.is_cpu() && tensor::can_pin(device.type())) {}

BlockUploader::HostPart& BlockUploader::next_host_part() {
  if (ring_.size() < kHostParts) {
    ring_.push_back(
        {tensor::empty_on_host({kHostPartBytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned_)), {}});
    return ring_.back();
  }
  HostPart& part = ring_[next_];
  next_ = (next_ + 1) % kHostParts;
  if (part.taken) part.taken->synchronize();
  return part;
}

void BlockUploader::send(const HostPart& part, const at::Tensor& buffer, int64_t begin, int64_t size) {
  if (size == 0) return;
  buffer.narrow(0, begin, size).copy_(part.memory.narrow(0, 0, size), /*non_blocking=*/pinned_);
}

FilledBuffer BlockUploader::upload(const Block& block, std::optional<SpareBuffer> spare) {
  const at::NoGradGuard no_grad;
  std::optional<comm::CommunicationStream::Guard> on_side;
  if (side_) on_side.emplace(*side_);
  const c10::OptionalDeviceGuard on_device(device_);
  FilledBuffer filled;
  if (spare) {
    filled.buffer = std::move(spare->buffer);
    if (spare->released) spare->released->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  } else {
    filled.buffer = at::empty({buffer_bytes(block)}, at::TensorOptions().dtype(at::kByte).device(device_));
  }
  int64_t offset = 0;
  for (const auto& tensor : block.tensors) {
    filled.tensors.push_back(tensor_in(filled.buffer, offset, *tensor));
    offset += aligned(tensor->bytes());
  }
  if (device_.is_cpu()) {
    for (size_t i = 0; i < block.tensors.size(); i++)
      copy_elements(*block.tensors[i], 0, block.tensors[i]->source().numel(),
                    static_cast<char*>(filled.tensors[i].data_ptr()));
    return filled;
  }
  // The parts are filled as the buffer, one range after the other; a range may end within a tensor.
  HostPart* part = nullptr;
  int64_t begin = 0, end = 0;  // of the buffer in the part
  const auto send_part = [&] {
    if (part == nullptr) return;
    send(*part, filled.buffer, begin, end - begin);
    if (pinned_) part->taken = mark();
    part = nullptr;
  };
  offset = 0;
  for (const auto& tensor : block.tensors) {
    const auto size = static_cast<int64_t>(c10::elementSize(tensor->dtype()));
    const int64_t elements = tensor->source().numel();
    for (int64_t done = 0; done < elements;) {
      const int64_t at = offset + done * size;
      if (part != nullptr && at + size - begin > kHostPartBytes) send_part();
      if (part == nullptr) {
        part = &next_host_part();
        begin = end = at;
      }
      const int64_t count = std::min(elements - done, (kHostPartBytes - (at - begin)) / size);
      copy_elements(*tensor, done, count, static_cast<char*>(part->memory.data_ptr()) + (at - begin));
      done += count;
      end = at + count * size;
    }
    offset += aligned(tensor->bytes());
  }
  send_part();
  filled.ready = mark();
  return filled;
}

std::shared_ptr<c10::Event> BlockUploader::mark() const {
  if (device_.is_cpu()) return nullptr;
  auto event = std::make_shared<c10::Event>(device_.type());
  event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return event;
}

void BlockUploader::wait_for(FilledBuffer& filled) {
  if (!filled.ready) return;
  const c10::Device device = filled.buffer.device();
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  filled.ready->block(stream);
  guard.recordDataPtrOnStream(filled.buffer.storage().data_ptr(), stream);
}

}  // namespace accel::bigmodel
