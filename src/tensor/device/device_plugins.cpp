// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/device_plugins.hpp"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"
#include "os/linker_error.hpp"
#include "os/mapped_file.hpp"

namespace accel::tensor {
namespace {

constexpr char kVariable[] = "ACCEL_DEVICE_PLUGINS";

std::recursive_mutex& load_mutex() {
  static std::recursive_mutex& mutex = *std::make_unique<std::recursive_mutex>().release();
  return mutex;
}

bool has_out_of_tree_device() {
  return c10::is_privateuse1_backend_registered() || c10::impl::hasDeviceGuardImpl(kOutOfTreeType);
}

// The registration of each type of device: the interface through which LibTorch uses its devices.
using Registrations = std::array<const void*, static_cast<size_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;
Registrations registrations() {
  Registrations found;
  for (size_t type = 0; type < found.size(); type++) found[type] = c10::impl::device_guard_impl_registry[type].load();
  return found;
}

std::atomic<void*>& library_of(size_t type) {
  static std::array<std::atomic<void*>, std::tuple_size_v<Registrations>> libraries{};
  return libraries.at(type);
}

// A second registration of another name is an exception in the middle of the library's load, from which no process
// recovers. So the file is searched for LibTorch's function beforehand.
bool registers_out_of_tree_device(const std::string& file) {
  return MappedFile(file).text().find("register_privateuse1_backend") != std::string_view::npos;
}

void load_plugin(const std::string& path, const std::string& source) {
  char absolute[PATH_MAX];
  require(realpath(path.c_str(), absolute) != nullptr && access(absolute, R_OK) == 0, Status::kNotFound,
          "the device plugin '", path, "' (from ", source,
          ") is not there or cannot be read; expected the path of a shared library");
  if (void* const loaded = dlopen(absolute, RTLD_NOW | RTLD_NOLOAD)) {
    dlclose(loaded);  // only this reference
    return;
  }
  require(!has_out_of_tree_device() || !registers_out_of_tree_device(absolute), Status::kUnsupported,
          "the device plugin ", absolute, " (from ", source,
          ") registers an out-of-tree device, and LibTorch has place for one, which is '",
          c10::get_privateuse1_backend(), "' in this process; expected one of the two plugins");
  const Registrations before = registrations();
  void* const library = dlopen(absolute, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    fail(is_lack_of_memory(reason) ? Status::kOutOfMemory : Status::kUnsupported, "the device plugin ", absolute,
         " (from ", source, ") cannot be loaded: ", reason == nullptr ? "?" : reason);
  }
  const Registrations after = registrations();
  for (size_t type = 0; type < after.size(); type++)
    if (after[type] != before[type]) library_of(type) = library;
  if (after == before) {
    dlclose(library);
    fail(Status::kUnsupported, "the device plugin ", absolute, " (from ", source,
         ") registers no device with LibTorch; expected a library that does when it is loaded");
  }
}

}  // namespace

void load_device_plugins(const std::string& paths, const std::string& source) {
  const std::lock_guard lock(load_mutex());
  for (const std::string& path : split_text(paths, ':'))
    if (!path.empty()) load_plugin(path, source);
}

void* device_library(c10::DeviceType type) { return library_of(static_cast<size_t>(type)); }

void load_device_plugins_of_environment() {
  static std::atomic<bool> done{false};
  if (done.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(load_mutex());
  load_device_plugins(environment_text(kVariable).value_or(""), kVariable);
  done.store(true, std::memory_order_release);
}

const std::string& out_of_tree_name() {
  static const std::string none;
  static std::atomic<const std::string*> known{nullptr};
  if (const std::string* const name = known.load(std::memory_order_acquire)) return *name;
  load_device_plugins_of_environment();
  if (!has_out_of_tree_device()) return none;
  const std::lock_guard lock(load_mutex());
  if (known.load() == nullptr && c10::is_privateuse1_backend_registered())
    known = std::make_unique<std::string>(c10::get_privateuse1_backend()).release();  // a name never changes
  if (known.load() != nullptr) return *known;
  static const std::string unnamed = c10::get_privateuse1_backend();  // LibTorch's own name, until one is registered
  return unnamed;
}

}  // namespace accel::tensor
