// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/project.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/files/temporary.hpp"
#include "checkpoint/folder_layout.hpp"
#include "checkpoint/manifest.hpp"
#include "os/list_folder.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kPrefix = "checkpoint_";

bool is_taken(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0;
}

// Whether each file of the manifest has its size. A checkpoint of Accelerate has no manifest, but its files.
bool has_all_files(const std::string& folder) try {
  if (!has_manifest(folder)) {
    const std::vector<std::string> names = list_folder(folder);
    return std::any_of(names.begin(), names.end(), is_checkpoint_file) &&
           std::none_of(names.begin(), names.end(), is_own_file);
  }
  const Manifest manifest = load_manifest(folder);
  return std::all_of(manifest.files.begin(), manifest.files.end(), [&](const FileRecord& file) {
    struct stat found {};
    return ::stat((folder + "/" + file.name).c_str(), &found) == 0 && static_cast<uint64_t>(found.st_size) == file.size;
  });
} catch (const Error&) {
  return false;
}

}  // namespace

std::optional<int64_t> number_of_checkpoint(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.find_last_of('/') + 1);
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t number = -1;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = result.ec == std::errc() && result.ptr == digits.data() + digits.size() && number >= 0;
  return is_number ? std::optional<int64_t>(number) : std::nullopt;
}

std::string Project::base() const {
  require(settings_.automatic_checkpoint_naming, Status::kInvalidArgument,
          "no folder is given; expected one, or a project with automatic_checkpoint_naming");
  const std::string& folder = settings_.project_dir;
  require(!folder.empty(), Status::kInvalidArgument,
          "automatic_checkpoint_naming is 1 for a project without a folder; set project_dir");
  return folder + "/checkpoints";
}

std::string Project::next_folder() const { return text(base(), "/", kPrefix, settings_.iteration.value); }

std::vector<Project::Numbered> Project::checkpoints() const {
  std::vector<Numbered> found;
  const std::string folder = base();
  if (!is_folder(folder)) return found;
  for (const std::string& name : list_folder(folder))
    if (const auto number = number_of_checkpoint(name)) found.push_back({*number, folder + "/" + name});
  std::sort(found.begin(), found.end(), [](const Numbered& a, const Numbered& b) { return a.number < b.number; });
  return found;
}

std::string Project::newest_folder() const {
  const std::vector<Numbered> found = checkpoints();
  require(!found.empty(), Status::kNotFound, "there is no checkpoint in '", base(), "'; expected ", kPrefix,
          "<number>");
  const auto newest =
      std::find_if(found.rbegin(), found.rend(), [](const Numbered& one) { return has_all_files(one.path); });
  if (newest == found.rend()) return found.back().path;  // the load says what it lacks
  if (newest != found.rbegin())
    log(LogLevel::kWarning, "'", found.back().path, "' is not complete; the newest complete checkpoint is '",
        newest->path, "'");
  return newest->path;
}

void Project::require_new(const std::string& folder) const {
  require(!is_taken(folder), Status::kAlreadyExists, "'", folder,
          "' already exists; set the project's iteration above ", settings_.iteration.value,
          " (save_iteration), or remove it");
}

int64_t Project::iteration_after(int64_t loaded) const {
  if (!settings_.automatic_checkpoint_naming) return loaded + 1;
  const std::vector<Numbered> found = checkpoints();
  return std::max(loaded, found.empty() ? loaded : found.back().number) + 1;
}

void Project::remove_oldest(const std::string& kept, FileSystem& files, const std::string& agreed) const {
  if (!settings_.automatic_checkpoint_naming || !settings_.total_limit.value) return;
  std::vector<Numbered> found = checkpoints();
  found.erase(std::remove_if(found.begin(), found.end(), [&](const Numbered& one) { return one.path == kept; }),
              found.end());
  auto others = static_cast<size_t>(*settings_.total_limit - 1);
  const auto last_agreed =
      std::find_if(found.begin(), found.end(), [&](const Numbered& one) { return one.path == agreed; });
  if (last_agreed != found.end()) {
    found.erase(last_agreed);
    if (others > 0) others--;  // a limit of 1 leaves two
  }
  for (size_t i = 0; i + others < found.size(); i++) {
    const Target target(found[i].path);
    const std::string removed = temporary_sibling(target, /*aside=*/false);
    if (files.rename(found[i].path.c_str(), removed.c_str()) != 0)
      fail_system(Status::kIo, "remove the folder", found[i].path);
    sync_folder(files, target.parent);  // else a power cut may leave the name and take files
    if (files.remove_tree(removed.c_str()) != 0) fail_system(Status::kIo, "remove the folder", found[i].path);
  }
}

}  // namespace accel::checkpoint
