// SPDX-License-Identifier: Apache-2.0
#include "comm/backend/plugin.hpp"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "os/plugin_file.hpp"
#include "tensor/device/device_plugins.hpp"

namespace accel::comm {
namespace {

// Variables that the plugin's libraries read when they are loaded, and that cannot be set otherwise. Variables of the
// user are not replaced.
struct LoadSettings {
  std::string_view plugin;
  std::vector<EnvironmentDefaults::Variable> variables;
  bool stay;  // they are read again with each group
};

std::vector<LoadSettings> load_settings() {
  return {
      // UCX must neither catch the application's signals nor patch mmap. Its later settings are in
      // comm/ucx/transport/worker.cpp.
      {"ucx",
       {{"UCX_HANDLE_ERRORS", "none"},
        {"UCX_MEM_EVENTS", "n"},
        {"UCX_VFS_ENABLE", "n"},
        {"UCX_WARN_UNUSED_ENV_VARS", "n"},
        {"UCX_LOG_LEVEL", "fatal"},
        {"UCX_DEBUG_SIGNO", "0"}},  // else SIGHUP prints and no longer ends the program
       false},
      // A time-out must fail the work, not end the process.
      {"nccl",
       {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},  // clean up only
        {"TORCH_NCCL_ENABLE_MONITORING", "0"},     // the monitor of its watchdog ends the process
        {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},   // as its watchdog does after an error of the GPU
        {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"}},      // a minute in which no work gets its error
       true},
  };
}

}  // namespace

// The environment is changed once for each plugin, around its load.
CreateBackend load_plugin(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, CreateBackend>& loaded =
      *std::make_unique<std::map<std::string, CreateBackend>>().release();  // never destroyed
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto known = loaded.find(name); known != loaded.end()) return known->second;
  const auto path = plugin_path(name);
  if (!path) fail(Status::kUnsupported, missing_plugin(name));
  std::unique_ptr<EnvironmentDefaults> environment;
  bool stays = false;
  for (const LoadSettings& settings : load_settings()) {
    if (settings.plugin != name) continue;
    environment = std::make_unique<EnvironmentDefaults>(settings.variables);
    stays = settings.stay;
  }
  void* const library = load_plugin_file(*path);
  const auto create = reinterpret_cast<CreateBackend>(plugin_symbol(library, *path, kCreateBackendSymbol));
  loaded.emplace(name, create);
  if (stays) static_cast<void>(environment.release());
  return create;
}

CreateBackend find_device_backend(c10::DeviceType device) {
  void* const library = tensor::device_library(device);
  return library == nullptr ? nullptr : reinterpret_cast<CreateBackend>(dlsym(library, kCreateBackendSymbol));
}

}  // namespace accel::comm
