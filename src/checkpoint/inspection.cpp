// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/inspection.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/folder_layout.hpp"
#include "checkpoint/formats/compressed_header.hpp"
#include "checkpoint/listed_file.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/project.hpp"
#include "os/list_folder.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {
namespace {

bool is_safetensors(const std::string& name) { return has_extension(name, ".safetensors"); }
bool is_compressed_file(const std::string& name) { return has_extension(name, ".ztensors"); }

std::vector<TensorEntry> tensors_in(const std::string& path) {
  const MappedFile file(path);
  if (!is_compressed_file(path)) return parse_safetensors_header(file.text(), path).tensors;
  std::vector<TensorEntry> tensors;
  for (const CompressedEntry& entry : parse_compressed_header(file.text(), path).tensors)
    tensors.push_back({entry.name, entry.dtype, entry.shape, 0, entry.bytes});
  return tensors;
}

std::optional<struct stat> look_at(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 ? std::optional<struct stat>(found) : std::nullopt;
}

void require_folder(const std::string& path) {
  require(is_folder(path), Status::kNotFound, "'", path, "' is not a folder; expected a checkpoint");
}

// {name: bytes} of all files of a checkpoint but its manifest, also of those that a manifest does not list.
std::map<std::string, uint64_t> sizes_of_files(const std::string& folder, const std::string& below = "") {
  std::map<std::string, uint64_t> sizes;
  for (const std::string& entry : list_folder(folder + "/" + below)) {
    const std::string name = below + entry;
    const auto found = look_at(folder + "/" + name);
    if (!found || name == kManifestName) continue;
    if (S_ISDIR(found->st_mode)) sizes.merge(sizes_of_files(folder, name + "/"));
    if (S_ISREG(found->st_mode)) sizes.emplace(name, static_cast<uint64_t>(found->st_size));
  }
  return sizes;
}

CheckpointSummary summarize(const std::string& path) {
  CheckpointSummary summary;
  summary.path = path;
  summary.iteration = number_of_checkpoint(path);
  for (const auto& [name, bytes] : sizes_of_files(path)) {
    summary.files++;
    summary.bytes += bytes;
    summary.complete = summary.complete || is_checkpoint_file(name);
  }
  if (!has_manifest(path)) return summary;
  try {
    const Manifest manifest = load_manifest(path);
    summary.iteration = manifest.iteration;
    summary.world_size = manifest.world_size;
    summary.complete = true;
  } catch (const Error&) {
    summary.complete = false;
  }
  return summary;
}

using TensorBytes = std::map<std::string, std::pair<TensorEntry, std::string_view>>;

TensorBytes tensors_of(const MappedFile& file) {
  const SafetensorsHeader header = parse_safetensors_header(file.text(), file.path());
  TensorBytes tensors;
  for (const TensorEntry& entry : header.tensors)
    tensors.emplace(entry.name, std::make_pair(entry, file.text().substr(header.data_begin + entry.begin,
                                                                         entry.end - entry.begin)));
  return tensors;
}

bool is_same(const TensorBytes::mapped_type& a, const TensorBytes::mapped_type& b) {
  return std::tie(a.first.dtype, a.first.shape, a.second) == std::tie(b.first.dtype, b.first.shape, b.second);
}

void compare_tensors(const std::string& name, const MappedFile& first, const MappedFile& second,
                     Difference& difference) {
  const TensorBytes ours = tensors_of(first), theirs = tensors_of(second);
  for (const auto& [tensor, content] : ours) {
    const auto other = theirs.find(tensor);
    if (other == theirs.end())
      difference.only_in_first.push_back(text(name, ": ", tensor));
    else if (!is_same(content, other->second))
      difference.different.push_back(text(name, ": ", tensor));
  }
  for (const auto& [tensor, content] : theirs)
    if (ours.count(tensor) == 0) difference.only_in_second.push_back(text(name, ": ", tensor));
}

void compare_files(const std::string& name, const std::string& first_folder, const std::string& second_folder,
                   Difference& difference) {
  const MappedFile first(first_folder + "/" + name), second(second_folder + "/" + name);
  const bool equal = first.text() == second.text();
  (equal ? difference.equal : difference.different).push_back(name);
  if (!equal && is_safetensors(name)) compare_tensors(name, first, second, difference);
}

}  // namespace

Verification verify_checkpoint(const std::string& folder) {
  require_folder(folder);
  const Manifest manifest = load_manifest(folder);
  Verification result;
  for (const FileRecord& record : manifest.files) {
    result.files++;
    result.bytes += record.size;
    try {
      open_listed(folder, manifest, record, /*verify=*/true);
    } catch (const Error& error) {
      result.problems.emplace_back(error.message());
    }
  }
  return result;
}

std::vector<CheckpointSummary> list_checkpoints(const std::string& folder) {
  require_folder(folder);
  const std::string below = folder + "/checkpoints";
  const std::string& base = is_folder(below) ? below : folder;
  std::vector<CheckpointSummary> found;
  for (const std::string& name : list_folder(base)) {
    const std::string path = base + "/" + name;
    if (name.front() == '.' || !is_folder(path)) continue;
    CheckpointSummary summary = summarize(path);
    if (summary.complete || has_manifest(path) || number_of_checkpoint(path)) found.push_back(std::move(summary));
  }
  const auto order = [](const CheckpointSummary& one) {
    return std::make_tuple(one.iteration.value_or(-1), std::cref(one.path));
  };
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return found;
}

std::vector<FileContents> files_of_checkpoint(const std::string& folder) {
  require_folder(folder);
  std::vector<FileContents> files;
  for (const auto& [name, bytes] : sizes_of_files(folder)) {
    FileContents contents{name, bytes, {}};
    if (is_safetensors(name) || is_compressed_file(name)) contents.tensors = tensors_in(folder + "/" + name);
    files.push_back(std::move(contents));
  }
  return files;
}

Difference compare_checkpoints(const std::string& first, const std::string& second) {
  require_folder(first);
  require_folder(second);
  const auto ours = sizes_of_files(first), theirs = sizes_of_files(second);
  Difference difference;
  for (const auto& [name, bytes] : ours) {
    if (theirs.count(name) == 0)
      difference.only_in_first.push_back(name);
    else
      compare_files(name, first, second, difference);
  }
  for (const auto& [name, bytes] : theirs)
    if (ours.count(name) == 0) difference.only_in_second.push_back(name);
  return difference;
}

}  // namespace accel::checkpoint
