// SPDX-License-Identifier: Apache-2.0
// Staging pipeline: collectives of device tensors by way of host memory, in chunks. While one chunk is exchanged, the
// next ones are copied to the host and the former ones to the device, each on a stream of its own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "comm/backend/collective_call.hpp"

namespace accel::comm {

// One collective. Its tensors are flat, of one length and dtype, and on one device; each is cut into the same chunks.
struct StagedOperation {
  const char* name;                 // "all_reduce"
  at::Tensor described;             // the caller's tensor, whose shape the ranks compare; undefined for a barrier
  std::vector<at::Tensor> inputs;   // copied to the host
  std::vector<at::Tensor> outputs;  // copied from there
  bool in_place = false;            // inputs and outputs have the same host memory
  int64_t most_tensors = 0;         // of one rank, so that all ranks cut the same chunks
  // Exchanges one chunk of the whole call and waits: gets those of all inputs one after the other, and of all outputs.
  std::function<void(const at::Tensor& input, const at::Tensor& output, const WholeCall& whole)> exchange;

  const at::Tensor& any() const { return inputs.empty() ? outputs.front() : inputs.front(); }
  bool has_tensors() const { return !inputs.empty() || !outputs.empty(); }
};

class StagingPipeline {
 public:
  // `timeout` is that of a wait for the device.
  StagingPipeline(c10::DeviceType device, int rank, std::chrono::milliseconds timeout);
  ~StagingPipeline();
  StagingPipeline(const StagingPipeline&) = delete;
  StagingPipeline& operator=(const StagingPipeline&) = delete;

  // Runs them one after the other after `ready`, an event for each device. Returns when all are exchanged and the last
  // copies are queued on stream_to_device(). By one thread at a time. Throws CollectiveError.
  void run(const std::vector<StagedOperation>& operations, const std::vector<c10::Event>& ready);
  c10::Stream stream_to_device(c10::Device device) { return streams_of(device).to_device; }
  // Host memory like the tensor, for copies that do not wait where the device has such.
  at::Tensor host_like(const at::Tensor& tensor) const;
  // A copy in host memory, when the current stream has come to it.
  at::Tensor copy_to_host(const at::Tensor& tensor);
  // The index of the operation that the latest run() was at.
  size_t latest_part() const { return latest_part_; }
  // Ends the waits of run(), on any thread.
  void stop() { stopped_ = true; }

  static size_t count_chunks(const StagedOperation& operation);

 private:
  static constexpr size_t kAhead = 3;  // chunks whose copies to the host are queued, with the one that is exchanged
  static constexpr size_t kSlots = 6;  // the copies to the device of the others may still run
  struct Slot {
    at::Tensor memory;
    std::optional<c10::Event> on_host, on_device;  // the copies of its latest chunk
  };
  struct Chunk {
    const StagedOperation* operation;
    uint32_t part;
    int64_t begin, length;
  };
  struct Streams {
    c10::Stream to_host, to_device;
  };
  struct HostMemory {
    at::Tensor input, output;
  };
  static std::vector<Chunk> cut(const std::vector<StagedOperation>& operations);

  Streams& streams_of(c10::Device device);
  at::Tensor allocate(size_t bytes) const;
  HostMemory host_memory(const Chunk& chunk, Slot& slot) const;
  void begin_copy_to_host(const Chunk& chunk, Slot& slot);
  void exchange(const Chunk& chunk, Slot& slot, uint32_t parts);
  void begin_copy_to_device(const Chunk& chunk, Slot& slot);
  void run_chunks(const std::vector<Chunk>& chunks, uint32_t parts);
  void wait(const c10::Event& event) const;
  void wait_for_copies() noexcept;

  const c10::DeviceType device_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
  const bool pinned_;
  std::map<c10::DeviceIndex, Streams> streams_;
  std::array<Slot, kSlots> slots_;
  size_t latest_part_ = 0;
  std::atomic<bool> stopped_{false};
};

}  // namespace accel::comm
