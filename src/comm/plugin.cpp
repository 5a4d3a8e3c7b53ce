#include "comm/plugin.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/linker_error.hpp"
#include "base/read_line.hpp"
#include "tensor/device_plugins.hpp"

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
      // UCX must neither catch the application's signals nor patch mmap. Its later settings are in comm/ucx/worker.cpp.
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
        {"TORCH_NCCL_ENABLE_MONITORING", "0"}},    // the monitor of its watchdog ends the process
       true},
  };
}

// The file of this code: the shared library, or the program that links the static one. From the kernel, which has the
// absolute path; the dynamic linker may have one relative to a former working directory.
std::string own_folder() {
  const auto address = reinterpret_cast<uintptr_t>(&own_folder);
  std::ifstream mappings("/proc/self/maps");
  for (std::string line; read_line(mappings, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    if (address < begin || address >= end) continue;
    const size_t path = line.find('/'), slash = line.rfind('/');
    if (path != std::string::npos) return line.substr(path, slash - path);
  }
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string file(info.dli_fname);
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

std::vector<std::string> plugin_folders() {
  std::vector<std::string> folders;
  if (const auto path = environment_text("ACCEL_PLUGIN_PATH")) folders.push_back(*path);
  const std::string here = own_folder();
  folders.push_back(here + "/accel");
  folders.push_back(here);
  folders.push_back(here + "/comm/ucx");  // the build tree
  folders.push_back(here + "/comm/nccl");
  folders.push_back(ACCEL_PLUGIN_DIR);
  return folders;
}

}  // namespace

std::optional<std::string> plugin_path(const std::string& name) {
  for (const std::string& folder : plugin_folders()) {
    const std::string file = folder + "/libaccel_" + name + ".so";
    if (access(file.c_str(), R_OK) == 0) return file;
  }
  return std::nullopt;
}

std::string missing_plugin(const std::string& name) {
  std::string searched;
  for (const std::string& folder : plugin_folders()) searched += (searched.empty() ? "" : ", ") + folder;
  return text("the backend plugin libaccel_", name, ".so is in none of ", searched,
              "; build it, or set ACCEL_PLUGIN_PATH to its folder");
}

// The environment is changed once for each plugin, around its load.
CreateBackend load_plugin(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, CreateBackend>& loaded =
      *std::make_unique<std::map<std::string, CreateBackend>>().release();  // never destroyed
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto known = loaded.find(name); known != loaded.end()) return known->second;
  const auto path = plugin_path(name);
  if (!path) {
    fail(Status::kUnsupported, missing_plugin(name));
  }
  std::unique_ptr<EnvironmentDefaults> environment;
  bool stays = false;
  for (const LoadSettings& settings : load_settings()) {
    if (settings.plugin != name) continue;
    environment = std::make_unique<EnvironmentDefaults>(settings.variables);
    stays = settings.stay;
  }
  void* library = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    fail(is_lack_of_memory(reason) ? Status::kOutOfMemory : Status::kUnsupported, "the backend plugin ", *path,
         " cannot be loaded: ", reason == nullptr ? "?" : reason);
  }
  const auto create = reinterpret_cast<CreateBackend>(dlsym(library, kCreateBackendSymbol));
  require(create != nullptr, Status::kUnsupported, "the backend plugin ", *path, " lacks ", kCreateBackendSymbol,
          "; it belongs to another version");
  loaded.emplace(name, create);
  if (stays) static_cast<void>(environment.release());
  return create;
}

CreateBackend find_device_backend(c10::DeviceType device) {
  void* const library = tensor::device_library(device);
  return library == nullptr ? nullptr : reinterpret_cast<CreateBackend>(dlsym(library, kCreateBackendSymbol));
}

}  // namespace accel::comm
