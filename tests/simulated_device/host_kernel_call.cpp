// SPDX-License-Identifier: Apache-2.0
#include "host_kernel_call.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <mutex>

#include "generator.hpp"

namespace simulated_device {
namespace {

bool has_generator(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments())
    if (argument.type()->str().find("Generator") != std::string::npos) return true;
  return false;
}

}  // namespace

void call_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack, HostKernel on_host,
                  c10::DeviceIndex device) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  if (!op.hasTag(at::Tag::nondeterministic_seeded) || has_generator(op.schema())) return on_host(op, stack);
  // Draws from the CPU's generator, whatever the device: with the state of the device's.
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  auto* const cpu = at::detail::getDefaultCPUGenerator().unsafeGetGeneratorImpl();
  auto* const of_device = default_generator(device).unsafeGetGeneratorImpl();
  const auto before = cpu->get_state();
  cpu->set_state(*of_device->get_state());
  try {
    on_host(op, stack);
  } catch (...) {
    cpu->set_state(*before);
    throw;
  }
  of_device->set_state(*cpu->get_state());
  cpu->set_state(*before);
}

}  // namespace simulated_device
