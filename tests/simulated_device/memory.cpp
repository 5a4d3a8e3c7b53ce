// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <iomanip>
#include <sstream>

#include "capture.hpp"
#include "device.hpp"
#include "faults.hpp"
#include "settings.hpp"

namespace simulated_device {
namespace {

constexpr size_t kBlockAlignment = 512;
constexpr size_t kAllDevices = kMaxDevices * kAddressSpace;

// All devices' addresses, which nobody may touch, and behind them the operators' addresses.
char* address_space() {
  static char* const space = [] {
    void* const both = mmap(nullptr, 2 * kAllDevices, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(both != MAP_FAILED, "no addresses for the memory of the simulated devices: ", std::strerror(errno));
    char* const operators = static_cast<char*>(both) + kAllDevices;
    TORCH_CHECK(mprotect(operators, kAllDevices, PROT_READ | PROT_WRITE) == 0, std::strerror(errno));
    madvise(operators, kAllDevices, MADV_DONTDUMP);
    return static_cast<char*>(both);
  }();
  return space;
}

std::string bytes_text(size_t bytes) {
  static const char* const units[] = {"bytes", "KiB", "MiB", "GiB"};
  double number = static_cast<double>(bytes);
  int unit = 0;
  for (; unit < 3 && number >= 1024; ++unit) number /= 1024;
  std::ostringstream text;
  text << std::fixed << std::setprecision(unit == 0 ? 0 : 2) << number << ' ' << units[unit];
  return text.str();
}

constexpr size_t kAggregate = 0;

}  // namespace

void* operator_address(const void* device_address) {
  if (!device_address) return nullptr;
  return const_cast<char*>(static_cast<const char*>(device_address)) + kAllDevices;
}

bool is_device_address(const void* address) {
  const auto* const place = static_cast<const char*>(address);
  return place >= address_space() && place < address_space() + kAllDevices;
}

c10::DeviceIndex device_of_address(const void* address) {
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - address_space());
  return static_cast<c10::DeviceIndex>(offset / kAddressSpace);
}

Memory::Memory(SimulatedDevice& device) : device_(device) { free_[0] = {kAddressSpace, false}; }

char* Memory::base() const { return address_space() + static_cast<size_t>(device_.index()) * kAddressSpace; }

// The smallest free range of the kind that is large enough.
bool Memory::take(size_t size, bool reserved, size_t* offset) {
  auto best = free_.end();
  for (auto range = free_.begin(); range != free_.end(); ++range)
    if (range->second.is_reserved == reserved && range->second.size >= size &&
        (best == free_.end() || range->second.size < best->second.size))
      best = range;
  if (best == free_.end()) return false;
  *offset = best->first;
  const FreeRange rest{best->second.size - size, reserved};
  free_.erase(best);
  if (rest.size > 0) free_[*offset + size] = rest;
  if (!reserved) {
    reserved_ += size;
    stats_.reserved_bytes[kAggregate].increase(size);
    std::memset(operator_address(base() + *offset), kPoison, size);
  }
  return true;
}

bool Memory::take_any(size_t size, size_t* offset) {
  if (take(size, true, offset)) return true;
  return reserved_ + size <= static_cast<size_t>(settings().memory_bytes) && take(size, false, offset);
}

void Memory::put(size_t offset, FreeRange range) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + range.size && next->second.is_reserved == range.is_reserved) {
    range.size += next->second.size;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second.size == offset && before->second.is_reserved == range.is_reserved) {
      before->second.size += range.size;
      return;
    }
  }
  free_[offset] = range;
}

void* Memory::allocate(size_t bytes) {
  const size_t size = (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++num_allocations_;
  }
  if (faults().allocation_fails(device_.index())) out_of_memory(bytes, true);
  const c10::StreamId stream = current_stream_id(device_.index());
  const Capture* const capture = device_.stream(stream).capture();
  const uint64_t pool = capture ? capture->pool() : 0;
  for (int attempt = 0;; ++attempt) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      size_t offset = 0;
      if (attempt > 0) release_reserved();
      if (take_any(size, &offset)) {
        blocks_[offset] = {size, bytes, stream, {}, pool, static_cast<uint64_t>(num_allocations_)};
        if (pool != 0) freed_in_pools_[pool];
        used_ += size;
        stats_.allocation[kAggregate].increase(1);
        stats_.active[kAggregate].increase(1);
        stats_.allocated_bytes[kAggregate].increase(size);
        stats_.active_bytes[kAggregate].increase(size);
        stats_.requested_bytes[kAggregate].increase(bytes);
        ++stats_.num_device_alloc;
        return base() + offset;
      }
    }
    if (attempt > 0) out_of_memory(bytes, false);
    device_.synchronize();  // what was freed and is still used by streams
    const std::lock_guard<std::mutex> lock(mutex_);
    ++stats_.num_alloc_retries;
  }
}

void Memory::out_of_memory(size_t bytes, bool simulated) {
  size_t used = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++stats_.num_ooms;
    used = used_;
  }
  const auto total = static_cast<size_t>(settings().memory_bytes);
  const c10::Device device(kDeviceType, device_.index());
  TORCH_CHECK_WITH(OutOfMemoryError, false, device_name_setting(), " out of memory. Tried to allocate ",
                   bytes_text(bytes), ". Device ", device.str(), " has a total capacity of ", bytes_text(total),
                   " of which ", bytes_text(total > used ? total - used : 0), " is free.",
                   simulated ? " This failure was asked for." : "");
}

void Memory::free(void* address) {
  const auto offset = static_cast<size_t>(static_cast<char*>(address) - base());
  Block block;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(offset);
    TORCH_INTERNAL_ASSERT(found != blocks_.end());
    block = found->second;
    blocks_.erase(found);
    stats_.allocation[kAggregate].decrease(1);
    stats_.allocated_bytes[kAggregate].decrease(block.size);
    stats_.requested_bytes[kAggregate].decrease(block.requested);
    ++stats_.num_device_free;
    const auto of_pool = freed_in_pools_.find(block.pool);
    if (of_pool != freed_in_pools_.end()) {
      of_pool->second[offset] = block;
      return;
    }
  }
  free_after_streams(offset, block);
}

void Memory::free_after_streams(size_t offset, const Block& freed) {
  Block block = freed;
  block.used_by.insert(block.stream);
  const auto remaining = std::make_shared<std::atomic<size_t>>(block.used_by.size());
  for (const c10::StreamId stream : block.used_by) {
    device_.stream(stream).enqueue(
        [this, offset, remaining, size = block.size, requested = block.requested] {
          if (--*remaining == 0) put_block(offset, size, requested);
        },
        {}, Stream::WhenLost::kRun);
  }
}

void Memory::put_block(size_t offset, size_t size, size_t requested) {
  std::memset(operator_address(base() + offset), kPoison, size);
  const std::lock_guard<std::mutex> lock(mutex_);
  put(offset, {size, true});
  used_ -= size;
  stats_.active[kAggregate].decrease(1);
  stats_.active_bytes[kAggregate].decrease(size);
}

void Memory::release_pool(uint64_t pool) {
  std::map<size_t, Block> freed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    freed.swap(freed_in_pools_[pool]);
    freed_in_pools_.erase(pool);
  }
  for (const auto& [offset, block] : freed) free_after_streams(offset, block);
}

std::map<size_t, Memory::Contents> Memory::contents() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<size_t, Contents> contents;
  for (const auto& [offset, block] : blocks_) {
    const auto* const bytes = static_cast<const char*>(operator_address(base() + offset));
    contents[offset] = {block.number, {bytes, bytes + block.size}};
  }
  return contents;
}

void Memory::restore(const std::map<size_t, Contents>& contents, uint64_t pool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto poison = [this](size_t offset, const Block& block) {
    std::memset(operator_address(base() + offset), kPoison, block.size);
  };
  for (const auto& [offset, block] : blocks_) {
    const auto before = contents.find(offset);
    if (before != contents.end() && before->second.number == block.number)
      std::memcpy(operator_address(base() + offset), before->second.bytes.data(), block.size);
    else if (block.pool == pool)
      poison(offset, block);
  }
  for (const auto& [offset, block] : freed_in_pools_[pool]) poison(offset, block);
}

void Memory::record_stream(void* address, c10::StreamId stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(static_cast<size_t>(static_cast<char*>(address) - base()));
  if (found != blocks_.end()) found->second.used_by.insert(stream);
}

void Memory::release_reserved() {
  FreeRanges ranges;
  ranges.swap(free_);
  for (auto& [offset, range] : ranges) {
    if (range.is_reserved) {
      reserved_ -= range.size;
      stats_.reserved_bytes[kAggregate].decrease(range.size);
      // Whole pages only; the rest stays in memory.
      const size_t page = 4096;
      const size_t first = (offset + page - 1) / page * page;
      const size_t last = (offset + range.size) / page * page;
      if (last > first) madvise(operator_address(base() + first), last - first, MADV_DONTNEED);
    }
    put(offset, {range.size, false});
  }
}

void Memory::empty_cache() {
  device_.synchronize();
  const std::lock_guard<std::mutex> lock(mutex_);
  release_reserved();
}

DeviceStats Memory::statistics() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void Memory::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto* const stat : {&stats_.allocation, &stats_.active, &stats_.allocated_bytes, &stats_.reserved_bytes,
                           &stats_.active_bytes, &stats_.requested_bytes})
    (*stat)[kAggregate].reset_peak();
}

void Memory::reset_accumulated() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto* const stat : {&stats_.allocation, &stats_.active, &stats_.allocated_bytes, &stats_.reserved_bytes,
                           &stats_.active_bytes, &stats_.requested_bytes})
    (*stat)[kAggregate].reset_accumulated();
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_device_alloc = stats_.num_device_free = 0;
}

size_t Memory::free_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto total = static_cast<size_t>(settings().memory_bytes);
  return total > reserved_ ? total - reserved_ : 0;
}

int64_t Memory::num_allocations() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_allocations_;
}

}  // namespace simulated_device
