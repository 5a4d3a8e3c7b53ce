// SPDX-License-Identifier: Apache-2.0
#include "os/plugin_file.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/split_text.hpp"
#include "os/linker_error.hpp"
#include "os/list_folder.hpp"
#include "os/loaded_file.hpp"
#include "os/read_line.hpp"

namespace accel {
namespace {

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
  const std::string file = loaded_file_of(&own_folder);
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

std::vector<std::string> plugin_folders(const std::string& folder_of_library = "") {
  std::vector<std::string> folders;
  if (const auto path = environment_text("ACCEL_PLUGIN_PATH")) folders = split_text(*path, ':');
  const std::string here = folder_of_library.empty() ? own_folder() : folder_of_library;
  folders.push_back(here + "/accel");
  folders.push_back(here);
  for (const char* built : {"/comm/ucx", "/comm/nccl", "/tensor/graphs", "/http/server", "/text/tokenizers"})
    folders.push_back(here + built);
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

std::map<std::string, std::string> plugin_paths(const std::string& folder_of_library) {
  constexpr std::string_view kBegin = "libaccel_", kEnd = ".so";
  std::map<std::string, std::string> paths;
  for (const std::string& folder : plugin_folders(folder_of_library)) {
    if (!is_folder(folder)) continue;
    for (const std::string& file : list_folder(folder)) {
      if (file.size() <= kBegin.size() + kEnd.size() || file.compare(0, kBegin.size(), kBegin) != 0 ||
          file.compare(file.size() - kEnd.size(), kEnd.size(), kEnd) != 0)
        continue;
      paths.emplace(file.substr(kBegin.size(), file.size() - kBegin.size() - kEnd.size()), folder + "/" + file);
    }
  }
  return paths;
}

std::string missing_plugin(const std::string& name) {
  std::string searched;
  for (const std::string& folder : plugin_folders()) searched += (searched.empty() ? "" : ", ") + folder;
  return text("the plugin libaccel_", name, ".so is in none of ", searched,
              "; build it, or set ACCEL_PLUGIN_PATH to its folder");
}

void* load_plugin_file(const std::string& path) {
  void* const plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (plugin != nullptr) {
    log(LogLevel::kInfo, "the plugin ", path, " is loaded");
    return plugin;
  }
  const char* const reason = dlerror();
  fail(is_lack_of_memory(reason) ? Status::kOutOfMemory : Status::kUnsupported, "the plugin ", path,
       " cannot be loaded: ", reason == nullptr ? "?" : reason);
}

void* plugin_symbol(void* plugin, const std::string& path, const char* name) {
  void* const found = dlsym(plugin, name);
  require(found != nullptr, Status::kUnsupported, "the plugin ", path, " lacks ", name,
          "; it belongs to another version");
  return found;
}

}  // namespace accel
