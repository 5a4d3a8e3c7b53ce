#include "comm/plugin.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <mutex>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/linker_error.hpp"
#include "base/read_line.hpp"

namespace accel::comm {
namespace {

// UCX reads its environment when it is loaded and when a context is made. It must not catch the host's signals nor
// patch its mmap.
constexpr EnvironmentDefaults::Variable kUcxEnvironment[] = {
    {"UCX_HANDLE_ERRORS", "none"},
    {"UCX_MEM_EVENTS", "n"},
    {"UCX_VFS_ENABLE", "n"},
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},
    {"UCX_SYSV_ERROR_HANDLING", "y"},
    {"UCX_LOG_LEVEL", "fatal"},
    // cma ends this process when it copies from the memory of one that has just ended. posix makes files in /dev/shm,
    // which stay when the process is killed meanwhile, and need room there; sysv needs neither.
    {"UCX_TLS", "^cma,posix"},
    {"UCX_TCP_PUT_ENABLE", "n"},  // it ends this process on the answer to a write that was given up
    {"UCX_RNDV_THRESH", "1mb"},   // its own choice asks before most messages, slow over long links (bench/RESULTS.md)
    {"UCX_DEBUG_SIGNO", "0"},     // else SIGHUP prints and no longer ends the program
};

// ProcessGroupNCCL reads its own when it is made. A time-out has to fail the work, and must not end the process.
constexpr EnvironmentDefaults::Variable kNcclEnvironment[] = {
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},  // clean up only
    {"TORCH_NCCL_ENABLE_MONITORING", "0"},     // the monitor of its watchdog ends the process
};

// Where this code lives: the shared library, or the program that links the static one. The kernel knows the whole path;
// the dynamic linker only what it was called by, which means another place once the program has changed its folder.
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

CreateBackend load_plugin(const std::string& name) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto path = plugin_path(name);
  if (!path) {
    std::string searched;
    for (const std::string& folder : plugin_folders()) searched += (searched.empty() ? "" : ", ") + folder;
    fail(Status::kUnsupported, "the backend plugin libaccel_", name, ".so is in none of ", searched,
         "; build it, or set ACCEL_PLUGIN_PATH to its folder");
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
  return create;
}

EnvironmentDefaults backend_environment() {
  std::vector<EnvironmentDefaults::Variable> variables(std::begin(kUcxEnvironment), std::end(kUcxEnvironment));
  variables.insert(variables.end(), std::begin(kNcclEnvironment), std::end(kNcclEnvironment));
  return EnvironmentDefaults(variables);
}

}  // namespace accel::comm
