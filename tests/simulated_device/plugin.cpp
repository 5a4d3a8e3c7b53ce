// SPDX-License-Identifier: Apache-2.0
// Registers the device when the library is loaded, and has the functions for tests.
#include <c10/core/DeviceType.h>
#include <torch/library.h>

#include <stdexcept>

#include "capture.hpp"
#include "copies.hpp"
#include "device.hpp"
#include "faults.hpp"
#include "graph.hpp"
#include "guard.hpp"
#include "hooks.hpp"
#include "host_access.hpp"
#include "host_fallback.hpp"
#include "own_operators.hpp"
#include "pinned_memory.hpp"
#include "settings.hpp"
#include "simulated_device.h"
#include "storage_operators.hpp"

namespace {

using namespace simulated_device;

const bool registered = [] {
  prepare_for_exit_and_fork();
  report_host_access();
  plan_faults_of_environment();
  c10::SetAllocator(kDeviceType, &allocator());
  register_guard();
  register_hooks();
  c10::register_privateuse1_backend(device_name_setting());
  register_graphs();
  return true;
}();

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_storage_operators(library);
  register_copies(library);
  register_own_operators(library);
  register_cpu_kernels(library);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&host_fallback>());
}

extern "C" {

void simulated_device_get_settings(simulated_device_settings* settings) { *settings = simulated_device::settings(); }

const char* simulated_device_configure(const simulated_device_settings* settings) {
  static thread_local std::string problem;
  try {
    set_settings(*settings);
    return nullptr;
  } catch (const std::invalid_argument& error) {
    problem = error.what();
    return problem.c_str();
  }
}

void simulated_device_fail_allocation(int32_t device, int64_t n) { faults().fail_allocation(device, n); }
void simulated_device_fail_copy(int32_t device, int64_t n) { faults().fail_copy(device, n); }
void simulated_device_lose(int32_t device) { any_device(static_cast<c10::DeviceIndex>(device)).set_lost(true); }

void simulated_device_restore(void) {
  faults().clear();
  for (c10::DeviceIndex index = 0; index < kMaxDevices; ++index) any_device(index).set_lost(false);
}

void simulated_device_run_kernel(int32_t device, int64_t microseconds) {
  Stream& stream = current_stream(static_cast<c10::DeviceIndex>(device));
  const std::chrono::microseconds duration(microseconds);
  if (Capture* const capture = stream.capture()) capture->add(nullptr, duration);
  stream.enqueue(nullptr, duration);
}

void simulated_device_get_statistics(int32_t device, simulated_device_statistics* statistics) {
  SimulatedDevice& of = any_device(static_cast<c10::DeviceIndex>(device));
  *statistics = {};
  statistics->allocations = of.memory().num_allocations();
  statistics->allocated_bytes = of.memory().statistics().allocated_bytes[0].current;
  statistics->copies = of.copies;
  statistics->operators = of.operators;
  statistics->pageable_copies = of.pageable_copies;
  statistics->host_waits = of.host_waits;
  statistics->pinned_bytes = static_cast<int64_t>(pinned_use().now);
  statistics->peak_pinned_bytes = static_cast<int64_t>(pinned_use().peak);
  statistics->launches = of.launches;
  statistics->casts = of.casts;
  for (const Stream* stream : of.streams()) {
    ++statistics->streams;
    statistics->pending_tasks += static_cast<int64_t>(stream->num_pending());
  }
}

void simulated_device_reset_peak_pinned(void) { reset_peak_pinned(); }

}  // extern "C"
