// SPDX-License-Identifier: Apache-2.0
// Memory of one device: a range of addresses that the host cannot touch, and the same memory at other addresses, which
// only the device's operators use.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace simulated_device {

class SimulatedDevice;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr int kPoison = 0xff;  // what memory without a value is filled with

// The address at which the operators find the memory of a device address; null for null.
void* operator_address(const void* device_address);
// Whether a device has this address, also if nothing is allocated there; and which.
bool is_device_address(const void* address);
c10::DeviceIndex device_of_address(const void* address);

class Memory {
 public:
  explicit Memory(SimulatedDevice& device);

  // Memory of the calling thread's current stream. Throws c10::OutOfMemoryError.
  void* allocate(size_t bytes);
  // The memory is free when the work that is queued now has ended, on its own stream and on those recorded for it.
  void free(void* address);
  void record_stream(void* address, c10::StreamId stream);
  // The memory of a pool that was freed stays out of use until the pool is released: graphs use it.
  void release_pool(uint64_t pool);
  // What every block has in it, of all streams that the caller has waited for.
  struct Contents {
    uint64_t number;  // of the allocation
    std::vector<char> bytes;
  };
  std::map<size_t, Contents> contents();
  // Writes it back into the blocks that are there still. Those of the pool have no value then.
  void restore(const std::map<size_t, Contents>& contents, uint64_t pool);
  // Returns what is free to the system.
  void empty_cache();

  DeviceStats statistics();
  void reset_peak();
  void reset_accumulated();
  size_t free_bytes();
  int64_t num_allocations();

 private:
  struct Block {
    size_t size;
    size_t requested;
    c10::StreamId stream;
    std::set<c10::StreamId> used_by;
    uint64_t pool;    // of the capture it was allocated in; 0: none
    uint64_t number;  // of the allocation
  };
  struct FreeRange {
    size_t size;
    bool is_reserved;  // was in use and counts for the limit; poisoned
  };
  using FreeRanges = std::map<size_t, FreeRange>;

  bool take(size_t size, bool reserved, size_t* offset);
  bool take_any(size_t size, size_t* offset);
  void put(size_t offset, FreeRange range);
  void free_after_streams(size_t offset, const Block& block);
  void put_block(size_t offset, size_t size, size_t requested);
  void release_reserved();
  [[noreturn]] void out_of_memory(size_t bytes, bool simulated);
  char* base() const;

  SimulatedDevice& device_;
  std::mutex mutex_;
  std::map<size_t, Block> blocks_;                              // by offset
  std::map<uint64_t, std::map<size_t, Block>> freed_in_pools_;  // of pools that are alive
  FreeRanges free_;
  size_t used_ = 0;      // bytes of blocks, also of those that streams still use
  size_t reserved_ = 0;  // used, or free and poisoned
  int64_t num_allocations_ = 0;
  DeviceStats stats_;
};

// The allocator of all devices, for LibTorch.
c10::DeviceAllocator& allocator();

}  // namespace simulated_device
