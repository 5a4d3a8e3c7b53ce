#include "kernels/tensor_memory.hpp"

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
#include <utility>

#include "kernels/compute_policy.hpp"

namespace accel::kernels {
namespace {

// Never destroyed: tensors may outlive everything else.
BlockCache& block_cache() {
  static BlockCache& cache = *std::make_unique<BlockCache>(0).release();
  return cache;
}

// What is not ours is left to it.
std::atomic<c10::Allocator*> former_allocator{nullptr};

c10::Allocator& other_allocator() {
  c10::Allocator* const former = former_allocator.load(std::memory_order_relaxed);
  return former != nullptr ? *former : *c10::GetCPUAllocator();
}

void free_block(void* block) {
  if (block == nullptr) return;
  if (!block_cache().give(block)) return other_allocator().raw_deleter()(block);
  c10::profiledCPUMemoryReporter().Delete(block);
}

constexpr size_t kSmallestFromSource = 16 << 10;
thread_local const TensorMemorySource::Allocate* memory_source = nullptr;

c10::DataPtr allocate_from_source(size_t bytes) {
  const auto* const source = std::exchange(memory_source, nullptr);  // which may make tensors itself
  auto tensor = std::make_unique<at::Tensor>((*source)(bytes));
  memory_source = source;
  void* const data = tensor->mutable_data_ptr();
  const auto free = [](void* owner) { std::unique_ptr<at::Tensor>(static_cast<at::Tensor*>(owner)); };
  return {data, tensor.release(), free, c10::Device(c10::DeviceType::CPU)};
}

class TensorAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (memory_source != nullptr && bytes >= kSmallestFromSource) return allocate_from_source(bytes);
    if (bytes < BlockCache::kSmallest || !compute_policy().cached_memory) return other_allocator().allocate(bytes);
    void* block = block_cache().take(bytes);
    if (block == nullptr) {
      block_cache().trim();
      block = block_cache().take(bytes);
    }
    if (block == nullptr) return other_allocator().allocate(bytes);  // whose error says that there is no memory
    c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

// Never destroyed either.
TensorAllocator& tensor_allocator() {
  static TensorAllocator& allocator = *std::make_unique<TensorAllocator>().release();
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

bool host_uses_libtorch() {
  void* const library = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

void install_tensor_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    former_allocator = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&tensor_allocator(), /*priority=*/1);
  });
}

TensorMemorySource::TensorMemorySource(Allocate allocate) : allocate_(std::move(allocate)), outer_(memory_source) {
  if (!allocate_) return;
  install_tensor_memory();
  memory_source = &allocate_;
}

TensorMemorySource::~TensorMemorySource() { memory_source = outer_; }

at::Tensor empty_kept(c10::IntArrayRef shape, const at::TensorOptions& options) {
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(shape)) * options.dtype().itemsize();
  if (bytes < BlockCache::kSmallest || !options.device().is_cpu()) return at::empty(shape, options);
  const ComputeScope scope({compute_policy().routed_products, true});
  return at::detail::empty_generic(shape, &tensor_allocator(), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   c10::typeMetaToScalarType(options.dtype()), std::nullopt);
}

void keep_tensor_memory(size_t most_kept) { block_cache().set_most_kept(most_kept); }

size_t default_most_kept(size_t local_processes) { return memory_limit() / 4 / std::max<size_t>(local_processes, 1); }

void trim_tensor_memory() { block_cache().trim(); }

BlockStatistics tensor_memory_statistics() { return block_cache().statistics(); }

void reset_tensor_memory_peak() { block_cache().reset_peak(); }

}  // namespace accel::kernels
