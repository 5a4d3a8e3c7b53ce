// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory/cpu_allocator.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <mutex>

#include "kernels/compute_policy.hpp"

namespace accel::kernels {
namespace {

// Never destroyed: tensors may outlive everything else.
CachingAllocator& caching_allocator() {
  static CachingAllocator& instance = *std::make_unique<CachingAllocator>(0).release();
  return instance;
}

// Serves whatever the cache does not.
std::atomic<c10::Allocator*> former_allocator{nullptr};

c10::Allocator& other_allocator() {
  c10::Allocator* const former = former_allocator.load(std::memory_order_relaxed);
  return former != nullptr ? *former : *c10::GetCPUAllocator();
}

void free_block(void* block) {
  if (block == nullptr) return;
  if (!caching_allocator().free(block)) return other_allocator().raw_deleter()(block);
  c10::profiledCPUMemoryReporter().Delete(block);
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < CachingAllocator::kSmallest || !compute_policy().use_cached_memory)
      return other_allocator().allocate(bytes);
    void* block = caching_allocator().allocate(bytes);
    if (block == nullptr) {
      caching_allocator().empty_cache();
      block = caching_allocator().allocate(bytes);
    }
    if (block == nullptr) return other_allocator().allocate(bytes);  // whose error says that there is no memory
    c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

// Never destroyed either.
CpuAllocator& cpu_allocator() {
  static CpuAllocator& allocator = *std::make_unique<CpuAllocator>().release();
  return allocator;
}

// The limit of a container, where there is one.
size_t memory_limit() {
  const size_t physical = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L)) *
                          static_cast<size_t>(std::max(sysconf(_SC_PAGESIZE), 0L));
  std::ifstream file("/sys/fs/cgroup/memory.max");
  size_t limit = 0;
  return file >> limit ? std::min(limit, physical) : physical;
}

}  // namespace

bool application_uses_libtorch() {
  void* const library = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

void install_caching_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    former_allocator = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&cpu_allocator(), /*priority=*/1);
  });
}

at::Tensor empty_cached(c10::IntArrayRef shape, const at::TensorOptions& options) {
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(shape)) * options.dtype().itemsize();
  if (bytes < CachingAllocator::kSmallest || !options.device().is_cpu()) return at::empty(shape, options);
  const ComputeScope scope({compute_policy().use_tuned_kernels, true});
  return at::detail::empty_generic(shape, &cpu_allocator(), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   c10::typeMetaToScalarType(options.dtype()), std::nullopt);
}

void set_max_cached_memory(size_t bytes) { caching_allocator().set_max_cached(bytes); }

size_t default_max_cached_memory(size_t local_processes) {
  return memory_limit() / 4 / std::max<size_t>(local_processes, 1);
}

void empty_cache() { caching_allocator().empty_cache(); }

AllocatorStatistics cpu_memory_statistics() { return caching_allocator().statistics(); }

void reset_cpu_memory_peak() { caching_allocator().reset_peak(); }

}  // namespace accel::kernels
