#include "comm/plugin.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel::comm {
namespace {

// UCX reads its environment when it is loaded and when a context is made. It must not catch the host's signals nor
// patch its mmap.
constexpr std::pair<const char*, const char*> kUcxEnvironment[] = {
    {"UCX_HANDLE_ERRORS", "none"},
    {"UCX_MEM_EVENTS", "n"},
    {"UCX_VFS_ENABLE", "n"},
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},
    {"UCX_POSIX_ERROR_HANDLING", "y"},
    {"UCX_LOG_LEVEL", "fatal"},
    {"UCX_TLS", "^cma"},          // it ends this process when it copies from the memory of one that has just ended
    {"UCX_TCP_PUT_ENABLE", "n"},  // it ends this process on the answer to a write that was given up
    {"UCX_RNDV_THRESH", "1mb"},   // its own choice asks before most messages, slow over long links (bench/RESULTS.md)
    {"UCX_DEBUG_SIGNO", "0"},     // else SIGHUP prints and no longer ends the program
};

// ProcessGroupNCCL reads its own when it is made. A time-out has to fail the work, and must not end the process.
constexpr std::pair<const char*, const char*> kNcclEnvironment[] = {
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},  // clean up only
    {"TORCH_NCCL_ENABLE_MONITORING", "0"},     // the monitor of its watchdog ends the process
};

// Where this code lives: the shared library, or the program that links the static one.
std::string own_folder() {
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
    fail(Status::kUnsupported, "the backend plugin ", *path, " cannot be loaded: ", reason == nullptr ? "?" : reason);
  }
  const auto create = reinterpret_cast<CreateBackend>(dlsym(library, kCreateBackendSymbol));
  require(create != nullptr, Status::kUnsupported, "the backend plugin ", *path, " lacks ", kCreateBackendSymbol,
          "; it belongs to another version");
  return create;
}

std::vector<EnvironmentDefault> backend_environment() {
  std::vector<EnvironmentDefault> variables;
  variables.reserve(std::size(kUcxEnvironment) + std::size(kNcclEnvironment));
  for (const auto& [name, value] : kUcxEnvironment) variables.emplace_back(name, value);
  for (const auto& [name, value] : kNcclEnvironment) variables.emplace_back(name, value);
  return variables;
}

}  // namespace accel::comm
