#include "tensor/device_availability.hpp"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>

#include "base/error.hpp"
#include "tensor/device_plugins.hpp"

namespace accel::tensor {
namespace {

// LibTorch's own kinds. Some are in a library beside libtorch_cpu.so, which is loaded where there is a driver: loading
// takes a second.
struct BuiltInKind {
  DeviceKind kind;
  const char* library;                        // null: in libtorch_cpu.so
  std::array<const char*, 2> driver_devices;  // files of the kernel
  const char* driver;
};

constexpr BuiltInKind kBuiltIn[] = {
    {DeviceKind::kCuda, "libtorch_cuda.so", {"/dev/nvidiactl", "/dev/dxg"}, "a driver of NVIDIA"},
    {DeviceKind::kCuda, "libtorch_hip.so", {"/dev/kfd", nullptr}, "a driver of AMD"},
    {DeviceKind::kXpu, "libtorch_xpu.so", {"/dev/dri", "/dev/dxg"}, "a driver of Intel"},
    {DeviceKind::kMps, nullptr, {nullptr, nullptr}, "macOS"},
};
constexpr size_t kBuiltInKinds = std::size(kBuiltIn);

bool has_driver(const BuiltInKind& kind) {
  return std::any_of(kind.driver_devices.begin(), kind.driver_devices.end(),
                     [](const char* file) { return file != nullptr && access(file, F_OK) == 0; });
}

bool is_host(DeviceKind kind) { return kind == DeviceKind::kCpu || kind == DeviceKind::kMeta; }

// LibTorch's interface to the devices of a kind; null if nothing is loaded that has one.
const c10::impl::DeviceGuardImplInterface* find_guard(DeviceKind kind) {
  const auto type = device_type(kind);
  return type ? c10::impl::device_guard_impl_registry[static_cast<size_t>(*type)].load() : nullptr;
}

// Tries each library once.
void load_built_in(DeviceKind kind) {
  static std::array<std::once_flag, kBuiltInKinds> once;
  for (size_t i = 0; i < kBuiltInKinds; i++)
    if (kBuiltIn[i].kind == kind && kBuiltIn[i].library != nullptr && has_driver(kBuiltIn[i]))
      std::call_once(once[i], [&] { dlopen(kBuiltIn[i].library, RTLD_NOW | RTLD_GLOBAL); });
}

std::string upper_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char letter) { return 'a' <= letter && letter <= 'z' ? letter - 32 : letter; });
  return text;
}

bool is_beside_libtorch(const char* library) {
  Dl_info info;
  if (dladdr(&c10::impl::device_guard_impl_registry, &info) == 0 || info.dli_fname == nullptr) return false;
  const std::string file = info.dli_fname;
  return access((file.substr(0, file.rfind('/') + 1) + library).c_str(), R_OK) == 0;
}

std::string reason_of_built_in(DeviceKind kind) {
  const std::string name = upper_case(device_kind_name(kind));
  std::string drivers;
  for (const BuiltInKind& built_in : kBuiltIn)
    if (built_in.kind == kind) drivers += (drivers.empty() ? "" : " or ") + std::string(built_in.driver);
  if (find_guard(kind) != nullptr) return text("LibTorch finds no device of ", name, "; expected ", drivers);
  for (const BuiltInKind& built_in : kBuiltIn) {
    if (built_in.kind != kind || built_in.library == nullptr || !is_beside_libtorch(built_in.library)) continue;
    if (!has_driver(built_in)) return text("there is no driver of ", name, " here; expected ", built_in.driver);
    dlerror();
    dlopen(built_in.library, RTLD_NOW | RTLD_GLOBAL);
    const char* const error = dlerror();
    return text(built_in.library, " cannot be loaded: ", error == nullptr ? "?" : error);
  }
  return text("this LibTorch was built without ", name);
}

std::string reason_of_plugin(DeviceKind kind) {
  const char* const name = device_kind_name(kind);
  if (find_guard(kind) != nullptr) return text("the plugin of ", name, " is loaded and finds no device");
  const std::string& loaded = out_of_tree_name();
  return text("the plugin of ", name == nullptr ? "an out-of-tree device" : name,
              " is not loaded: give its library in ACCEL_DEVICE_PLUGINS",
              loaded.empty() ? "" : text(" (the plugin that is loaded is of '", loaded, "')"));
}

constexpr DeviceKind kOrder[] = {DeviceKind::kOutOfTree, DeviceKind::kMps,   DeviceKind::kMlu, DeviceKind::kSdaa,
                                 DeviceKind::kMusa,      DeviceKind::kNpu,   DeviceKind::kHpu, DeviceKind::kCuda,
                                 DeviceKind::kXpu,       DeviceKind::kNeuron};

}  // namespace

int64_t device_count(DeviceKind kind) {
  if (is_host(kind)) return 1;
  load_device_plugins_of_environment();
  if (find_guard(kind) == nullptr) load_built_in(kind);
  const auto* const guard = find_guard(kind);
  return guard == nullptr ? 0 : guard->deviceCount();
}

std::string unavailable_reason(DeviceKind kind) {
  if (device_count(kind) == 0) {
    const bool is_built_in =
        std::any_of(std::begin(kBuiltIn), std::end(kBuiltIn), [&](const auto& known) { return known.kind == kind; });
    return is_built_in ? reason_of_built_in(kind) : reason_of_plugin(kind);
  }
  // Without them LibTorch's autograd refuses each backward.
  if (device_type(kind) == kOutOfTreeType && !at::isPrivateUse1HooksRegistered())
    return text("the plugin of ", device_kind_name(kind),
                " registers no hooks (at::RegisterPrivateUse1HooksInterface), which LibTorch's autograd needs");
  return "";
}

void require_device(c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return;
  const DeviceKind kind = device_kind(device);
  const std::string reason = unavailable_reason(kind);
  require(reason.empty(), Status::kUnsupported, "device ", device.str(), " is not there: ", reason);
  const int64_t count = device_count(kind);
  require(device.index() < count, Status::kInvalidArgument, "device ", device.str(), " is not there; this machine has ",
          count, " of this kind, ", device_kind_name(kind), ":0 to ", device_kind_name(kind), ":", count - 1);
}

std::optional<c10::Device> default_accelerator() {
  for (const DeviceKind kind : kOrder)
    if (unavailable_reason(kind).empty()) return c10::Device(*device_type(kind));
  return std::nullopt;
}

}  // namespace accel::tensor
