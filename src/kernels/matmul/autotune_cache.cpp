// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/autotune_cache.hpp"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "machine/processors.hpp"
#include "os/read_line.hpp"
#include "os/replaced_file.hpp"

namespace accel::kernels {
namespace {

// Only characters that every file system accepts.
std::string as_file_name(std::string name) {
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
    if (!plain) c = '_';
  }
  return name;
}

constexpr time_t kSecondsOfDisturbed = 3600;

bool is_recent(const std::string& path) {
  struct stat file = {};
  return stat(path.c_str(), &file) == 0 && time(nullptr) - file.st_mtime < kSecondsOfDisturbed;
}

std::optional<AutotuneTable> read_table(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return std::nullopt;
  std::ostringstream document;
  document << file.rdbuf();
  const std::optional<AutotuneTable> table = AutotuneTable::from_json(document.str());
  if (!table)
    log(LogLevel::kWarning, "the cached measurement '", path,
        "' is damaged; matmuls are measured again and it is replaced");
  return table;
}

}  // namespace

std::optional<std::string> cache_folder() {
  if (const auto folder = environment_text("XDG_CACHE_HOME")) return *folder + "/libaccel";
  if (const auto home = environment_text("HOME")) return *home + "/.cache/libaccel";
  return std::nullopt;
}

std::optional<std::string> processor_name(const std::string& list) {
  std::ifstream file(list);
  std::string name;
  // The first processor's lines, up to an empty one.
  for (std::string line; read_line(file, line) && !line.empty();) {
    const std::string key = line.substr(0, line.find_last_not_of(" \t", line.find(':') - 1) + 1);
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (key == "cpu family" || key == "model" || key == "model name" || key == "stepping")
      name += (name.empty() ? "" : " ") + line.substr(colon + 2);
  }
  if (name.empty()) return std::nullopt;
  return name;
}

AutotuneCache::AutotuneCache(std::string folder, const std::string& processor, const std::string& libtorch, int threads,
                             const std::string& kind)
    : folder_(std::move(folder)),
      path_(folder_ + "/" +
            as_file_name(
                text("matmul-", kind, kind.empty() ? "" : "-", processor, "-libtorch-", libtorch, "-", threads)) +
            ".json") {}

std::optional<AutotuneCache> AutotuneCache::find(const std::string& libtorch, int threads, const std::string& kind,
                                                 const std::string& processors) {
  const std::optional<std::string> folder = cache_folder();
  const std::optional<std::string> processor = processor_name(processors);
  const std::string limits = instruction_limits();
  if (folder && processor)
    return AutotuneCache(*folder, *processor + (limits.empty() ? "" : "-with-" + limits), libtorch, threads, kind);
  log(LogLevel::kWarning, "the measurement of matmuls is not saved: ",
      folder ? text(processors, " names no processor") : "neither XDG_CACHE_HOME nor HOME is set");
  return std::nullopt;
}

std::optional<AutotuneTable> AutotuneCache::load() const {
  if (const std::optional<AutotuneTable> table = read_table(path_)) return table;
  return is_recent(disturbed_path()) ? read_table(disturbed_path()) : std::nullopt;
}

void AutotuneCache::store(const AutotuneTable& table, bool is_disturbed) const {
  // The parent too: a new user has no ~/.cache.
  const std::string parent = folder_.substr(0, folder_.rfind('/'));
  mkdir(parent.c_str(), 0700);
  mkdir(folder_.c_str(), 0700);
  try {
    replace_file(is_disturbed ? disturbed_path() : path_, table.to_json() + "\n");
  } catch (const Error&) {
    log(LogLevel::kWarning, "the measurement of matmuls cannot be saved in '", path_,
        "'; each process measures again. Set XDG_CACHE_HOME to a folder that can be written");
  }
}

}  // namespace accel::kernels
