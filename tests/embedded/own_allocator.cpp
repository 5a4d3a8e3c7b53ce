// SPDX-License-Identifier: Apache-2.0
// A program with allocators of its own: what of the library's memory they see. docs/embedding.md says it.
#include <accel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> tensor_bytes{0}, tensors_freed{0}, objects{0};

void free_memory(void *memory) {
  if (memory != nullptr) tensors_freed++;
  std::free(memory);
}

class OwnAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    tensor_bytes += bytes;
    void *const memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return {memory, memory, &free_memory, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void *to, const void *from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

void expect(bool holds, const char *what) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, accel_last_error());
  std::exit(1);
}

// The bytes that the allocator was asked for when a tensor of this many floats was made by an operator.
size_t bytes_of_tensor(int64_t floats) {
  const size_t before = tensor_bytes, freed = tensors_freed;
  accel_tensor_t *tensor = nullptr;
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  expect(accel_tensor_randn(&floats, 1, ACCEL_DTYPE_FLOAT32, &cpu, &tensor) == ACCEL_OK, "randn");
  accel_tensor_release(tensor);
  expect(tensor_bytes == before || tensors_freed > freed, "what was allocated is freed");
  return tensor_bytes - before;
}

void use_state() {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = options.embedded = 1;
  options.cpu_memory = ACCEL_CPU_MEMORY_DEFAULT;
  accel_state_t *state = nullptr;
  expect(accel_state_create(&options, &state) == ACCEL_OK, "create");
  accel_state_release(state);
}

}  // namespace

void *operator new(size_t bytes) {
  objects++;
  if (void *const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

int main() {
  constexpr int64_t kLarge = 1 << 20;
  static OwnAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/0);
  use_state();
  const size_t made = objects;
  expect(bytes_of_tensor(kLarge) == kLarge * sizeof(float), "all tensors are of the program's allocator");
  expect(objects > made, "handles are of the program's operator new");
  std::puts("seen");
}
