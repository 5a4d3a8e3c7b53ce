// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/chunk_file.hpp"
#include "checkpoint/deepspeed_folder.hpp"
#include "checkpoint/folder_layout.hpp"
#include "checkpoint/formats/file_names.hpp"
#include "checkpoint/formats/sharded_index.hpp"
#include "checkpoint/formats/torch/distributed_checkpoint.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "checkpoint/listed_file.hpp"
#include "checkpoint/optimizer_names.hpp"
#include "os/list_folder.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kFormerManifest = "state.json";

}  // namespace

void fail_replaced(const std::string& folder) {
  fail(Status::kIo, "'", folder, "' was replaced by another program while it was read; load it again");
}

PinnedFolder::PinnedFolder(std::string path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

void PinnedFolder::check() const {
  struct stat opened {};
  struct stat named {};
  if (!descriptor_.is_open() || ::fstat(descriptor_.number(), &opened) != 0) return;
  const bool is_there = ::stat(path_.c_str(), &named) == 0;
  if (!is_there || opened.st_dev != named.st_dev || opened.st_ino != named.st_ino) fail_replaced(path_);
}

FolderReader::FolderReader(std::string folder, bool verify) : folder_(std::move(folder)), verify_(verify) {
  is_ours_ = has_manifest(folder_);
  if (is_ours_) {
    manifest_ = load_manifest(folder_);
    for (const FileRecord& file : manifest_.files) names_.insert(file.name);
    return;
  }
  require(::access(folder_.c_str(), F_OK) == 0, Status::kNotFound, "'", folder_,
          "' does not exist; expected the folder of a checkpoint");
  for (const std::string& name : list_folder(folder_)) names_.insert(name);
  require(names_.count(kFormerManifest) == 0, Status::kCorrupt, "'", folder_, "' has a ", kFormerManifest,
          ": it was saved by a libaccel before this format; load it with that version and save it with this one");
  require(std::any_of(names_.begin(), names_.end(), [](const auto& name) { return is_checkpoint_file(name); }),
          Status::kNotFound, "'", folder_, "' holds no checkpoint: neither ", kManifestName,
          " nor a file of save_state()");
  for (const std::string& name : names_)
    require(!is_own_file(name), Status::kNotFound, "'", folder_, "' holds '", name, "' but no ", kManifestName,
            ": it is a part of a checkpoint; expected all of it");
  for (const std::string& name : names_)
    require(!is_rank_file(name), Status::kUnsupported, "'", path(name),
            "' has the part of one rank, as LOCAL_STATE_DICT and use_dcp=False write it, which only the model that was "
            "sharded in the same way can read; save it with FULL_STATE_DICT or SHARDED_STATE_DICT");
  manifest_.world_size = 0;
  while (has(random_states_name(manifest_.world_size))) manifest_.world_size++;
}

bool FolderReader::is_of_deepspeed() const { return !is_ours_ && has(kModelName) && is_folder(path(kModelName)); }

std::string FolderReader::find(StateKind kind, const std::string& stem) const {
  for (std::string& name : possible_names(kind, stem))
    if (has(name)) return std::move(name);
  return {};
}

size_t FolderReader::count(StateKind kind, size_t first) const {
  size_t count = 0;
  while (!find(kind, numbered_stem(kind, first + count)).empty()) count++;
  return count;
}

void FolderReader::verify(const std::vector<std::string>& names) {
  if (!is_ours_ || !verify_) return;
  for (const std::string& name : names) {
    Verified& found = verified_[name];
    try {
      found.file = open_listed(folder_, manifest_, *manifest_.find(name), /*verify=*/true);
    } catch (...) {
      found.error = std::current_exception();
    }
  }
}

std::shared_ptr<const MappedFile> FolderReader::open(const std::string& name, bool verify) const {
  if (const auto found = verified_.find(name); found != verified_.end()) {
    if (found->second.error != nullptr) std::rethrow_exception(found->second.error);
    return found->second.file;
  }
  if (is_ours_) return open_listed(folder_, manifest_, *manifest_.find(name), verify);
  return std::make_shared<const MappedFile>(path(name));
}

c10::IValue FolderReader::read(const std::string& name) const {
  return is_index(name) ? read_shards(name) : read_value(open(name, verify_));
}

c10::IValue FolderReader::read_shared(StateKind kind, const std::string& name, const std::string& stem) const {
  if (!is_ours_ && is_folder(path(name))) return read_folder(kind, name);
  const c10::IValue rest = read(name);
  if (is_sharded_name(name)) return with_unwrapped_names(rest);
  ChunkTable chunks(verify_);
  for (int rank = 0; rank < std::max(world_size(), 1); rank++)
    if (const std::string file = chunks_name(stem, rank); has(file)) chunks.add(open(file, /*verify=*/false));
  return chunks.empty() ? rest : chunks.join(rest, kind == StateKind::kModel);
}

c10::IValue FolderReader::read_folder(StateKind kind, const std::string& name) const {
  const bool is_model = kind == StateKind::kModel;
  const bool is_of_deepspeed = name.rfind(kModelName, 0) == 0 && !is_sharded_name(name);
  if (is_of_deepspeed) return is_model ? read_deepspeed_model(path(name)) : read_deepspeed_optimizer(path(name));
  const c10::IValue state = read_distributed_state(path(name), is_model ? "model" : "optimizer");
  return is_model ? with_unwrapped_names(state) : state;
}

c10::IValue FolderReader::read_shards(const std::string& name) const {
  const ShardedIndex index = parse_sharded_index(open(name, verify_)->text(), path(name));
  auto all = tree::new_map();
  std::unordered_map<std::string, c10::impl::GenericDict> shards;
  for (const auto& [tensor, shard] : index.weight_map) {
    require(has(shard), Status::kCorrupt, "'", path(name), "' names '", shard, "', which is not there");
    auto found = shards.find(shard);
    if (found == shards.end()) found = shards.emplace(shard, read_value(open(shard, verify_)).toGenericDict()).first;
    require(found->second.contains(tensor), Status::kCorrupt, "'", path(shard), "' has no tensor '", tensor,
            "', which its index has");
    all.insert(tensor, found->second.at(tensor));
  }
  return all;
}

}  // namespace accel::checkpoint
