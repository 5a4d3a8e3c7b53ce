// SPDX-License-Identifier: Apache-2.0
#include "comm/staged/staging_pipeline.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/backend/communication_stream.hpp"
#include "comm/collective_error.hpp"
#include "comm/error_line.hpp"
#include "os/polling.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/lack_of_memory.hpp"

namespace accel::comm {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;  // of a slot: small enough for the cache, large enough for an exchange
constexpr int64_t kAlignment = 64;        // bytes

int64_t round_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t length_of_chunk(const StagedOperation& operation) {
  const auto element = static_cast<int64_t>(operation.any().element_size());
  const int64_t unit = std::max<int64_t>(kAlignment / element, 1);
  return std::max(kChunkBytes / operation.most_tensors / element / unit, int64_t{1}) * unit;
}

// The memory has tensors of one length, one after the other.
at::Tensor part_of(const at::Tensor& memory, size_t index, int64_t length) {
  return memory.narrow(0, static_cast<int64_t>(index) * length, length);
}

CollectiveFailure failure_of(const std::exception& error) {
  return tensor::means_no_memory(error) ? CollectiveFailure::kOutOfMemory : CollectiveFailure::kBackend;
}

}  // namespace

StagingPipeline::StagingPipeline(c10::DeviceType device, int rank, std::chrono::milliseconds timeout)
    : device_(device), rank_(rank), timeout_(timeout), pinned_(tensor::can_pin(device)) {}

StagingPipeline::~StagingPipeline() { wait_for_copies(); }

size_t StagingPipeline::count_chunks(const StagedOperation& operation) {
  if (!operation.has_tensors()) return 1;
  const int64_t chunk = length_of_chunk(operation);
  return static_cast<size_t>(std::max<int64_t>((operation.any().numel() + chunk - 1) / chunk, 1));
}

StagingPipeline::Streams& StagingPipeline::streams_of(c10::Device device) {
  const auto found = streams_.find(device.index());
  if (found != streams_.end()) return found->second;
  return streams_.emplace(device.index(), Streams{side_stream(device), side_stream(device)}).first->second;
}

at::Tensor StagingPipeline::allocate(size_t bytes) const {
  return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned_));
}

// The slot grows to what its chunks need, at most to a chunk's size and some alignment.
StagingPipeline::HostMemory StagingPipeline::host_memory(const Chunk& chunk, Slot& slot) const {
  const StagedOperation& operation = *chunk.operation;
  const auto type = operation.any().scalar_type();
  const auto element = static_cast<int64_t>(operation.any().element_size());
  const auto bytes_of = [&](size_t tensors) { return static_cast<int64_t>(tensors) * chunk.length * element; };
  const size_t inputs = operation.in_place ? 1 : operation.inputs.size();
  const int64_t input_bytes = round_up(bytes_of(inputs));
  const int64_t output_bytes = operation.in_place ? 0 : bytes_of(operation.outputs.size());
  if (!slot.memory.defined() || slot.memory.numel() < input_bytes + output_bytes) {
    slot.memory.reset();
    slot.memory = allocate(static_cast<size_t>(std::max(input_bytes + output_bytes, kAlignment)));
  }
  const at::Tensor input = slot.memory.narrow(0, 0, bytes_of(inputs)).view(type);
  if (operation.in_place) return {input, input};
  return {input, slot.memory.narrow(0, input_bytes, output_bytes).view(type)};
}

// With a deadline, because a device may hang.
void StagingPipeline::wait(const c10::Event& event) const {
  const Deadline deadline(timeout_);
  for (Polling polling; !event.query(); polling.pause()) {
    if (stopped_)
      throw CollectiveError(CollectiveFailure::kAborted, rank_, text("rank ", rank_, " has left or aborted the group"));
    if (deadline.passed())
      throw CollectiveError(
          CollectiveFailure::kTimeout, rank_,
          text("the ", c10::DeviceTypeName(device_, true), " has not copied a tensor after ", timeout_.count(), " ms"));
  }
}

void StagingPipeline::wait_for_copies() noexcept {
  for (Slot& slot : slots_)
    for (std::optional<c10::Event>* const event : {&slot.on_host, &slot.on_device}) {
      try {
        if (*event) wait(**event);
      } catch (const std::exception&) {
        slot.memory.reset();  // the device may still use it, and then its allocator keeps it
      }
      event->reset();
    }
}

void StagingPipeline::begin_copy_to_host(const Chunk& chunk, Slot& slot) {
  if (slot.on_device) wait(*slot.on_device);
  slot.on_host.reset();
  const StagedOperation& operation = *chunk.operation;
  if (operation.inputs.empty()) return;
  const at::Tensor memory = host_memory(chunk, slot).input;
  const c10::Stream stream = streams_of(operation.any().device()).to_host;
  const c10::StreamGuard guard(stream);
  for (size_t i = 0; i < operation.inputs.size(); i++)
    part_of(memory, i, chunk.length).copy_(operation.inputs[i].narrow(0, chunk.begin, chunk.length), pinned_);
  slot.on_host.emplace(device_);
  slot.on_host->record(stream);
}

void StagingPipeline::exchange(const Chunk& chunk, Slot& slot, uint32_t parts) {
  const StagedOperation& operation = *chunk.operation;
  if (slot.on_host) wait(*slot.on_host);
  const HostMemory memory = operation.has_tensors() ? host_memory(chunk, slot) : HostMemory();
  const auto shape = operation.described.defined() ? operation.described.sizes() : c10::IntArrayRef();
  operation.exchange(memory.input, memory.output, {shape, chunk.part, parts});
}

void StagingPipeline::begin_copy_to_device(const Chunk& chunk, Slot& slot) {
  slot.on_device.reset();
  const StagedOperation& operation = *chunk.operation;
  if (operation.outputs.empty()) return;
  const at::Tensor memory = host_memory(chunk, slot).output;
  const c10::Stream stream = streams_of(operation.any().device()).to_device;
  const c10::StreamGuard guard(stream);
  for (size_t i = 0; i < operation.outputs.size(); i++)
    operation.outputs[i].narrow(0, chunk.begin, chunk.length).copy_(part_of(memory, i, chunk.length), pinned_);
  slot.on_device.emplace(device_);
  slot.on_device->record(stream);
}

std::vector<StagingPipeline::Chunk> StagingPipeline::cut(const std::vector<StagedOperation>& operations) {
  std::vector<Chunk> chunks;
  for (size_t part = 0; part < operations.size(); part++) {
    const StagedOperation& operation = operations[part];
    const int64_t length = operation.has_tensors() ? operation.any().numel() : 0;
    const int64_t step = operation.has_tensors() ? length_of_chunk(operation) : 1;
    for (int64_t begin = 0; begin < std::max<int64_t>(length, 1); begin += step)
      chunks.push_back({&operation, static_cast<uint32_t>(part), begin, std::min(step, length - begin)});
  }
  return chunks;
}

void StagingPipeline::run_chunks(const std::vector<Chunk>& chunks, uint32_t parts) {
  const auto slot_of = [this](size_t chunk) -> Slot& { return slots_[chunk % kSlots]; };
  size_t copied = 0;
  for (size_t i = 0; i < chunks.size(); i++) {
    for (; copied < std::min(chunks.size(), i + kAhead); copied++) begin_copy_to_host(chunks[copied], slot_of(copied));
    latest_part_ = chunks[i].part;
    exchange(chunks[i], slot_of(i), parts);
    begin_copy_to_device(chunks[i], slot_of(i));
  }
}

void StagingPipeline::run(const std::vector<StagedOperation>& operations, const std::vector<c10::Event>& ready) {
  const at::NoGradGuard no_grad;
  latest_part_ = 0;
  try {
    for (const c10::Event& event : ready) {
      const Streams& streams = streams_of(event.device());
      event.block(streams.to_host);
      event.block(streams.to_device);
    }
    // The caller may release its tensors before the copies have ended.
    const c10::impl::VirtualGuardImpl guard(device_);
    for (const StagedOperation& operation : operations) {
      for (const at::Tensor& input : operation.inputs)
        guard.recordDataPtrOnStream(input.storage().data_ptr(), streams_of(input.device()).to_host);
      for (const at::Tensor& output : operation.outputs)
        guard.recordDataPtrOnStream(output.storage().data_ptr(), streams_of(output.device()).to_device);
    }
    run_chunks(cut(operations), static_cast<uint32_t>(operations.size()));
  } catch (const std::exception& error) {
    wait_for_copies();  // before the caller's tensors and the slots are used again
    if (dynamic_cast<const CollectiveError*>(&error) != nullptr) throw;
    throw CollectiveError(failure_of(error), rank_,
                          text(operations[latest_part_].name, " of ", c10::DeviceTypeName(device_, true),
                               " tensors failed on rank ", rank_, ": ", error_line(error)));
  }
}

at::Tensor StagingPipeline::host_like(const at::Tensor& tensor) const {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(pinned_));
}

at::Tensor StagingPipeline::copy_to_host(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor copy = host_like(tensor);
  copy.copy_(tensor, pinned_);
  c10::Event event(device_);
  event.record(c10::impl::VirtualGuardImpl(device_).getStream(tensor.device()));
  wait(event);
  return copy;
}

}  // namespace accel::comm
