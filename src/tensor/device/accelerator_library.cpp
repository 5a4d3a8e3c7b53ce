// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/accelerator_library.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <typeinfo>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "os/loaded_file.hpp"

namespace accel::tensor {
namespace {

struct AcceleratorLibrary {
  DeviceKind kind;
  const char* file;                           // null: in libtorch_cpu.so
  std::array<const char*, 2> driver_devices;  // files of the kernel
  bool has_own_devices;                       // the first file is there for this driver alone
  const char* driver;
  const char* visible_devices;  // the driver's variable that hides devices
};

constexpr AcceleratorLibrary kLibraries[] = {
    {DeviceKind::kCuda,
     "libtorch_cuda.so",
     {"/dev/nvidiactl", "/dev/dxg"},
     true,
     "a driver of NVIDIA",
     "CUDA_VISIBLE_DEVICES"},
    {DeviceKind::kCuda, "libtorch_hip.so", {"/dev/kfd", nullptr}, true, "a driver of AMD", "HIP_VISIBLE_DEVICES"},
    {DeviceKind::kXpu, "libtorch_xpu.so", {"/dev/dri", "/dev/dxg"}, false, "a driver of Intel", "ZE_AFFINITY_MASK"},
    {DeviceKind::kMps, nullptr, {nullptr, nullptr}, false, "macOS", nullptr},
};

// The result of loading a library.
struct Load {
  std::once_flag once;
  std::string error;  // empty: it is loaded, or nobody tried
};

Load& load_of(const AcceleratorLibrary& library) {
  static std::array<Load, std::size(kLibraries)>& loads =
      *std::make_unique<std::array<Load, std::size(kLibraries)>>().release();  // never destroyed
  return loads.at(static_cast<size_t>(&library - std::begin(kLibraries)));
}

bool has_driver(const AcceleratorLibrary& library) {
  return std::any_of(library.driver_devices.begin(), library.driver_devices.end(),
                     [](const char* file) { return file != nullptr && access(file, F_OK) == 0; });
}

// By the full path: the linker would look for a bare name in other folders, where another LibTorch may be.
std::string path_of(const AcceleratorLibrary& library) {
  const std::string beside = loaded_file_of(&at::get_num_threads);
  return library.file == nullptr || beside.empty() ? "" : beside.substr(0, beside.rfind('/') + 1) + library.file;
}

bool is_there(const AcceleratorLibrary& library) { return access(path_of(library).c_str(), R_OK) == 0; }

void load(const AcceleratorLibrary& library) {
  Load& outcome = load_of(library);
  std::call_once(outcome.once, [&] {
    if (dlopen(path_of(library).c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
    const char* const error = dlerror();
    outcome.error = error == nullptr ? "?" : error;
  });
}

std::atomic<int>& host_choices() {
  static std::atomic<int> alive{0};
  return alive;
}

// Whether LibTorch was answered that there is no accelerator because the CPU was chosen.
std::atomic<bool>& was_answered_for_host() {
  static std::atomic<bool> answered{false};
  return answered;
}

// LibTorch calls this for the hooks of a kind as long as the kind's library has not registered its own, with a higher
// priority. LibTorch keeps the result for ever.
template <DeviceKind kKind, typename Hooks, typename... Arguments>
struct OnDemand {
  using Registry = c10::Registry<std::string, std::unique_ptr<Hooks>, Arguments...>;
  inline static Registry* registry = nullptr;
  inline static const char* name = nullptr;

  static std::unique_ptr<Hooks> make(Arguments... arguments) {
    static thread_local bool is_asked_again = false;  // by a library that registers none
    if (is_asked_again) return std::make_unique<Hooks>();
    if (host_is_chosen()) {
      was_answered_for_host() = true;
      return std::make_unique<Hooks>();
    }
    load_accelerator(kKind);
    is_asked_again = true;
    auto hooks = registry->Create(name, arguments...);
    is_asked_again = false;
    return hooks;
  }

  static void register_for(Registry* hooks, const char* key) {
    if (hooks->Has(key)) return;  // the library is loaded already
    registry = hooks;
    name = key;
    hooks->Register(key, &make, c10::REGISTRY_FALLBACK);
  }
};

// The arguments of a registry are LibTorch's: versions differ in them.
template <DeviceKind kKind, typename Hooks, typename... Arguments>
void register_on_demand(c10::Registry<std::string, std::unique_ptr<Hooks>, Arguments...>* hooks, const char* key) {
  OnDemand<kKind, Hooks, Arguments...>::register_for(hooks, key);
}

std::string upper_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char letter) { return 'a' <= letter && letter <= 'z' ? letter - 32 : letter; });
  return text;
}

std::string drivers_of(DeviceKind kind) {
  std::string drivers;
  for (const AcceleratorLibrary& library : kLibraries)
    if (library.kind == kind) drivers += (drivers.empty() ? "" : " or ") + std::string(library.driver);
  return drivers;
}

// "; CUDA_VISIBLE_DEVICES is '', which may hide them"
std::string hidden_devices(DeviceKind kind) {
  for (const AcceleratorLibrary& library : kLibraries) {
    if (library.kind != kind || library.visible_devices == nullptr) continue;
    const char* const visible = std::getenv(library.visible_devices);  // an empty one hides all
    if (visible != nullptr) return text("; ", library.visible_devices, " is '", visible, "', which may hide them");
  }
  return "";
}

// torch.compile and FakeTensorMode put a guard in the place of CUDA's where there is no device; it counts 8 of them.
bool is_fake(const c10::impl::DeviceGuardImplInterface& guard) {
  return std::strstr(typeid(guard).name(), "FakeGuardImpl") != nullptr;
}

}  // namespace

const c10::impl::DeviceGuardImplInterface* find_guard(DeviceKind kind) {
  const auto type = device_type(kind);
  const auto* const guard = type ? c10::impl::device_guard_impl_registry[static_cast<size_t>(*type)].load() : nullptr;
  return guard == nullptr || is_fake(*guard) ? nullptr : guard;
}

void load_accelerators_on_demand() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_on_demand<DeviceKind::kCuda>(at::CUDAHooksRegistry(), "CUDAHooks");
    register_on_demand<DeviceKind::kXpu>(at::XPUHooksRegistry(), "XPUHooks");
  });
}

HostChoice::HostChoice() { ++host_choices(); }
HostChoice::~HostChoice() { --host_choices(); }

bool host_is_chosen() {
  if (host_choices() > 0) return true;
  if (const auto device = environment_text("ACCELERATE_TORCH_DEVICE")) return device->rfind("cpu", 0) == 0;
  return parse_flag(environment_text("ACCELERATE_USE_CPU").value_or("")).value_or(false);
}

void load_accelerator(DeviceKind kind) {
  if (find_guard(kind) != nullptr) return;
  for (const AcceleratorLibrary& library : kLibraries)
    if (library.kind == kind && has_driver(library) && is_there(library)) load(library);
}

bool is_built_in(DeviceKind kind) {
  return std::any_of(std::begin(kLibraries), std::end(kLibraries),
                     [&](const AcceleratorLibrary& library) { return library.kind == kind; });
}

std::string accelerator_obstacle(DeviceKind kind) {
  load_accelerator(kind);
  const auto* const guard = find_guard(kind);
  const bool is_whole = guard != nullptr && at::globalContext().getAcceleratorHooksInterface(guard->type()).isBuilt();
  if (is_whole && guard->deviceCount() > 0) return "";
  const std::string name = upper_case(device_kind_name(kind));
  if (guard != nullptr && !is_whole)
    return text("LibTorch was asked for ", name,
                " before its library was loaded, by a seed, a convolution, a backward or "
                "the like of a process that ",
                was_answered_for_host() ? "had chosen the CPU" : "did not call libaccel first",
                ", and keeps to its answer; expected a state on ", device_kind_name(kind), " before any of these");
  if (is_whole)
    return text("LibTorch finds no device of ", name, "; expected ", drivers_of(kind), " and a device",
                hidden_devices(kind));
  for (const AcceleratorLibrary& library : kLibraries) {
    if (library.kind != kind || library.file == nullptr || !is_there(library)) continue;
    if (!has_driver(library)) return text("there is no driver of ", name, " here; expected ", library.driver);
    return text(path_of(library), " cannot be loaded: ", load_of(library).error);
  }
  return text("this LibTorch was built without ", name);
}

std::string unused_drivers() {
  std::string reasons;
  for (const AcceleratorLibrary& library : kLibraries) {
    if (!library.has_own_devices || access(library.driver_devices[0], F_OK) != 0) continue;
    if (std::getenv(library.visible_devices) != nullptr) continue;
    const std::string obstacle = accelerator_obstacle(library.kind);
    if (!obstacle.empty())
      reasons += text(reasons.empty() ? "" : "; ", "there is ", library.driver, ", but ", obstacle);
  }
  return reasons;
}

}  // namespace accel::tensor
