// Tensors in memory that the peers on this host can map: an all-reduce of such tensors works in place, with no copy and
// no system call. Meant for buckets of gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/ucx/peers.hpp"

namespace accel::comm::ucx {

// Where a tensor lies, as told to the peers.
struct Place {
  uint64_t segment = 0;  // counted from 1; 0 is memory of another kind
  uint64_t oldest = 0;   // segments before this one are gone
  uint64_t size = 0;     // of the segment
  uint64_t offset = 0;
  int64_t descriptor = -1;
};

// Pages that several processes see. Unmapped when it is destroyed.
class Mapping {
 public:
  Mapping(int descriptor, size_t size, int rank);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_;
  size_t size_;
};

class SharedMemory {
 public:
  explicit SharedMemory(int rank) : rank_(rank) {}

  // Of zeros. It stays valid for as long as the tensor lives.
  at::Tensor allocate(int64_t numel, const at::TensorOptions& options);
  // Thread-safe, as is allocate().
  Place locate(const void* data, size_t bytes);
  // The same memory as seen from here; only the driver asks.
  char* attach(const Peers& peers, int peer, const Place& place);

 private:
  struct Segment {
    Segment(uint64_t number, FileDescriptor file, size_t size, int rank);
    uint64_t number;
    FileDescriptor file;
    Mapping memory;
  };

  int rank_;
  std::mutex mutex_;
  uint64_t last_ = 0;
  std::vector<std::weak_ptr<Segment>> segments_;
  std::map<std::pair<int, uint64_t>, Mapping> attached_;  // by rank and segment
};

}  // namespace accel::comm::ucx
