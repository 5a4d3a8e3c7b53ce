// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/device_threads.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>

namespace accel::tensor {
namespace {

using torch::autograd::Engine;

// The members that LibTorch leaves to engines that are derived from its own.
struct Threads : Engine {
  static bool are_missing(Engine& engine) { return (engine.*&Threads::device_ready_queues_).empty(); }
  static void start(Engine& engine) { (engine.*&Threads::start_device_threads)(); }
};

// Whether there is a device whose backward runs on a thread of its own.
bool has_device() {
  for (size_t type = 0; type < c10::impl::device_guard_impl_registry.size(); type++) {
    const auto device = static_cast<c10::DeviceType>(type);
    const bool is_host =
        device == c10::DeviceType::CPU || device == c10::DeviceType::Meta || device == c10::DeviceType::Lazy;
    const auto* const guard = c10::impl::device_guard_impl_registry[type].load(std::memory_order_acquire);
    if (!is_host && guard != nullptr && guard->deviceCount() > 0) return true;
  }
  return false;
}

// One on the CPU alone, which starts the threads if it is the first of the process.
void run_backward() {
  const at::AutoGradMode records(true);
  torch::autograd::backward({at::alias(at::zeros({}, at::TensorOptions()).requires_grad_())}, {});
}

}  // namespace

void start_device_threads() {
  static std::atomic<Engine*> complete{nullptr};
  Engine& engine = Engine::get_default_engine();
  if (complete.load(std::memory_order_acquire) == &engine || !has_device()) return;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (Threads::are_missing(engine)) run_backward();
  if (Threads::are_missing(engine)) Threads::start(engine);
  complete.store(&engine, std::memory_order_release);
}

}  // namespace accel::tensor
