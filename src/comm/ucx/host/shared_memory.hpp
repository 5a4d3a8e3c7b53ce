// SPDX-License-Identifier: Apache-2.0
// Shared memory for tensors that the peers on this host can map: reductions of such tensors work in place,
// without a copy or a system call. Used for gradient buckets, for sums of split layers, and for blocks of keys and
// values that all ranks read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/ucx/host/shared_mapping.hpp"
#include "os/file_descriptor.hpp"

namespace accel::comm::ucx {

// The address of a tensor in shared memory, as sent to the peers.
struct RemoteAddress {
  uint64_t segment = 0;  // numbered from 1; 0: not in shared memory
  uint64_t freed = 0;    // the number of segments that the rank has freed, each of which says so itself
  uint64_t size = 0;     // of the segment
  uint64_t offset = 0;
  int64_t descriptor = -1;
  uint64_t is_new = 0;  // whether it was not shown before
};

class SharedMemory {
 public:
  explicit SharedMemory(int rank) : rank_(rank) {}

  // Zero-initialised. The memory is registered for as long as the tensor lives.
  at::Tensor allocate(int64_t numel, const at::TensorOptions& options);
  // The address of memory from allocate(), or one with segment 0. Thread-safe, as is allocate().
  RemoteAddress remote_address(const void* data, size_t bytes);
  // All peers have mapped this segment, and keep it.
  void set_shown(uint64_t segment);
  // Maps the memory of a peer, whose process id is `process`, into this process. Only by the thread that has claimed
  // the engine. It stays mapped while somebody has the pointer, or the peer the memory.
  std::shared_ptr<char> map(int peer, int process, const RemoteAddress& address);

 private:
  struct Segment {
    Segment(uint64_t number, FileDescriptor file, size_t size, int rank);
    uint64_t number;
    FileDescriptor file;
    Mapping memory;
    bool was_shown = false;
  };

  int rank_;
  std::mutex mutex_;
  uint64_t last_ = 0;
  std::vector<std::weak_ptr<Segment>> segments_;
  std::map<std::pair<int, uint64_t>, std::shared_ptr<Mapping>> mapped_;  // by rank and segment
  std::map<int, uint64_t> freed_;  // by rank: of how many segments it is known here that they are freed
};

}  // namespace accel::comm::ucx
