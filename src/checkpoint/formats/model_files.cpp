// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/model_files.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>
#include <unordered_set>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/files/make_folders.hpp"
#include "checkpoint/formats/compressed_header.hpp"
#include "checkpoint/formats/file_names.hpp"
#include "checkpoint/formats/safetensors_header.hpp"
#include "checkpoint/formats/sharded_index.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "os/bus_error_guard.hpp"
#include "os/list_folder.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string beside(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

c10::IValue map_of_tensors(const NamedTensors& tensors) {
  auto map = tree::new_map();
  for (const auto& [name, tensor] : tensors) map.insert(name, tensor.detach());
  return map;
}

// Whether `name` is that of a numbered file of the pattern: "model-00001-of-00004.safetensors".
bool is_shard_name(const std::string& name, const std::string& pattern) {
  constexpr std::string_view kSuffix = "{suffix}", kNumbers = "-#####-of-#####";
  std::string wanted = pattern;
  wanted.replace(wanted.find(kSuffix), kSuffix.size(), kNumbers);
  return std::equal(name.begin(), name.end(), wanted.begin(), wanted.end(), [](char given, char expected) {
    return expected == '#' ? given >= '0' && given <= '9' : given == expected;
  });
}

// The names of shards that another save is about to replace.
constexpr std::string_view kFormer = ".former-";

bool cannot_link(int code) {
  return code == EPERM || code == ENOTSUP || code == ENOSYS || code == EMLINK || code == EXDEV || code == EINVAL;
}

// A file that is written, and gets its name later.
class PendingFile {
 public:
  PendingFile(std::string name, const std::string& folder, FileSystem& files)
      : name_(std::move(name)), file_(std::make_unique<AtomicFile>(beside(folder, name_), files)) {}

  const std::string& name() const { return name_; }

  void write_safe(const NamedTensors& tensors, const Metadata& metadata) {
    write_safetensors(file_->output(), tensors, metadata);
    finish([&](const std::string& path) { return has_header_of(path, tensors, metadata); });
  }
  void write_torch(const NamedTensors& tensors) {
    const c10::IValue value = map_of_tensors(tensors);
    write_torch_file(file_->output(), value);
    finish([&](const std::string& path) { return is_torch_file_of(path, value); });
  }
  void write_text(const std::string& text) {
    file_->output().write(text.data(), text.size());
    finish([&](const std::string& path) { return MappedFile(path).text() == text; });
  }
  void commit() { file_->commit(); }

 private:
  void finish(const std::function<bool(const std::string& path)>& is_as_given) {
    file_->output().finish();
    const std::string& path = file_->output().path();
    read_back(path, [&] { return is_as_given(path); });
  }

  std::string name_;
  std::unique_ptr<AtomicFile> file_;
};

class ModelWriter {
 public:
  ModelWriter(const std::string& folder, const SaveModelSettings& settings, FileSystem& files)
      : folder_(folder),
        settings_(settings),
        files_(files),
        pattern_(settings.safe_serialization ? kSafeWeightsPatternName : kWeightsPatternName),
        single_name_(settings.safe_serialization ? kSafeWeightsName : kWeightsName),
        index_name_(settings.safe_serialization ? kSafeWeightsIndexName : kWeightsIndexName) {}

  std::vector<std::string> write(const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors)
      require(tensor.defined() && !tensor.is_meta(), Status::kTypeMismatch, "parameter '", name,
              "' is on the meta device and has no data to save; load its weights first");
    make_folder();
    const ShardedModel model = split(tensors);
    for (const Shard& shard : model.shards) write_shard(shard);
    if (model.shards.size() > 1) {
      pending_.emplace_back(index_name_, folder_, files_);
      pending_.back().write_text(print_sharded_index(model.index));
    }
    commit();
    std::vector<std::string> names;
    for (const PendingFile& file : pending_) names.push_back(file.name());
    return names;
  }

 private:
  void make_folder() {
    std::error_code error;
    require(!fs::exists(folder_, error) || fs::is_directory(folder_, error), Status::kAlreadyExists, "'", folder_,
            "' is a file; expected a folder for the model");
    make_folders(folder_, files_);
  }

  // Tied tensors are dropped from safetensors files, whose tensors share nothing; torch's files hold what is shared
  // once.
  ShardedModel split(const NamedTensors& tensors) {
    const uint64_t max_shard_size = parse_shard_size(settings_.max_shard_size);
    if (!settings_.safe_serialization) return split_into_shards(tensors, max_shard_size, pattern_);
    SafetensorsContents contents = drop_tied(tensors);
    tied_ = std::move(contents.metadata);
    return split_into_shards(contents.tensors, max_shard_size, pattern_);
  }

  void write_shard(const Shard& shard) {
    pending_.emplace_back(shard.file, folder_, files_);
    if (!settings_.safe_serialization) {
      pending_.back().write_torch(shard.tensors);
      return;
    }
    Metadata metadata = {{"format", "pt"}};
    std::unordered_set<std::string_view> names;
    for (const auto& [name, tensor] : shard.tensors) names.insert(name);
    for (const auto& [name, first] : tied_) {
      require(name != "format", Status::kInvalidArgument,
              "a tied tensor is named 'format', which is a key of the file");
      if (names.count(first) != 0) metadata.emplace_back(name, first);
    }
    pending_.back().write_safe(shard.tensors, metadata);
  }

  bool is_new(const std::string& name) const {
    return std::any_of(pending_.begin(), pending_.end(), [&](const PendingFile& file) { return file.name() == name; });
  }

  void remove(const std::string& name) {
    if (files_.remove_file(beside(folder_, name).c_str()) != 0 && errno != ENOENT)
      fail_system(Status::kIo, "remove", beside(folder_, name));
  }

  // Lets the index of the earlier model name its shards by links, so that their own names are free for new files.
  // Returns false where there can be no links. `former` gets the names of the links.
  bool keep_former_shards(std::vector<std::string>& former) {
    const std::string path = beside(folder_, index_name_);
    if (std::error_code error; !fs::is_regular_file(path, error)) return true;
    ShardedIndex index;
    try {
      index = parse_sharded_index(MappedFile(path).text(), path);
    } catch (const Error& error) {
      if (error.status() != Status::kCorrupt) throw;
      return false;
    }
    std::unordered_set<std::string> named, replaced;
    for (const auto& [tensor, file] : index.weight_map) named.insert(file);
    for (auto& [tensor, file] : index.weight_map) {
      if (!is_new(file)) continue;
      replaced.insert(file);
      file.insert(0, kFormer);
    }
    for (const std::string& file : replaced) {
      const std::string link = std::string(kFormer) + file;
      if (named.count(link) > 0) return false;
      remove(link);
      if (files_.share_file(beside(folder_, file).c_str(), beside(folder_, link).c_str()) != 0) {
        if (errno == ENOENT || cannot_link(errno)) return false;  // the earlier model has no such file, or no links
        fail_system(Status::kIo, "link", beside(folder_, link));
      }
      former.push_back(link);
    }
    if (replaced.empty()) return true;
    sync_folder(files_, folder_);
    PendingFile renamed(index_name_, folder_, files_);
    renamed.write_text(print_sharded_index(index));
    renamed.commit();
    return true;
  }

  void commit() {
    std::vector<std::string> stale, former;
    bool replaces_shards = false;
    for (const std::string& name : list_folder(folder_)) {
      const bool is_shard = is_shard_name(name, pattern_);
      const bool is_former = starts_with(name, kFormer) && is_shard_name(name.substr(kFormer.size()), pattern_);
      replaces_shards = replaces_shards || (is_shard && is_new(name));
      if ((is_shard || name == single_name_ || name == index_name_) && !is_new(name)) stale.push_back(name);
      if (is_former) former.push_back(name);
    }
    if (replaces_shards && !keep_former_shards(former)) {
      remove(index_name_);
      sync_folder(files_, folder_);
    }
    stale.insert(stale.end(), former.begin(), former.end());
    for (PendingFile& file : pending_) file.commit();
    for (const std::string& name : stale) remove(name);
    if (!stale.empty()) sync_folder(files_, folder_);
  }

  std::string folder_;
  const SaveModelSettings& settings_;
  FileSystem& files_;
  std::string pattern_;
  std::string single_name_;
  std::string index_name_;
  Metadata tied_;
  std::vector<PendingFile> pending_;
};

// Metadata say whose tensors a file has, or nothing but which of its tensors are tied: their values are names of these.
void check_framework(const MappedFile& file) {
  const SafetensorsHeader header = parse_safetensors_header(file.text(), file.path());
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& entry : header.tensors) names.insert(entry.name);
  bool is_silent = true;
  for (const auto& [key, value] : header.metadata) {
    if (key == "format" && value == "pt") return;
    require(key != "format" || (value != "tf" && value != "flax"), Status::kInvalidArgument, "'", file.path(),
            "' was saved by ", value, "; expected a file of torch");
    is_silent = is_silent && names.count(value) != 0;
  }
  require(is_silent, Status::kCorrupt, "the metadata of '", file.path(),
          "' do not have the format 'pt'; expected it, as accel_save_model() and save_pretrained() write it");
  log(LogLevel::kWarning, "'", file.path(), "' has no metadata that say what wrote it; it is taken as a file of torch");
}

void append_file(const std::string& path, Framework framework, NamedTensors& tensors) {
  const auto file = std::make_shared<const MappedFile>(path);
  const BusErrorGuard lost_pages;
  const bool is_safetensors = ends_with(path, ".safetensors") && !is_compressed(file->text()) &&
                              !is_torch_file(file->text().substr(0, kTorchFileBytes));
  if (is_safetensors && framework == Framework::kTorch) check_framework(*file);
  lost_pages.check();
  const c10::IValue value = read_value(file);
  require(value.isGenericDict(), Status::kTypeMismatch, "'", path, "' holds a ", tree::kind_name(value),
          "; expected a map of tensors");
  for (const auto& member : value.toGenericDict()) {
    require(member.key().isString() && member.value().isTensor(), Status::kTypeMismatch, "'", path, "' has a ",
            tree::kind_name(member.value()), " under the key ", member.key(), "; expected a map of tensors");
    tensors.emplace_back(member.key().toStringRef(), member.value().toTensor());
  }
}

NamedTensors load_sharded(const std::string& path, Framework framework) {
  const ShardedIndex index = parse_sharded_index(MappedFile(path).text(), path);
  const std::string folder = fs::path(path).parent_path().string();
  NamedTensors tensors;
  std::unordered_set<std::string> loaded, names;
  for (const auto& [name, file] : index.weight_map)
    if (loaded.insert(file).second) append_file(beside(folder, file), framework, tensors);
  for (const auto& [name, tensor] : tensors)
    require(names.insert(name).second, Status::kCorrupt, "two files of '", path, "' have the tensor '", name, "'");
  for (const auto& [name, file] : index.weight_map)
    require(names.count(name) != 0, Status::kCorrupt, "'", beside(folder, file), "' has no tensor '", name,
            "', which '", path, "' says it has");
  return tensors;
}

// The file of a folder that describes the model.
std::string find_model(const std::string& folder) {
  for (const char* name : {kWeightsName, kSafeWeightsName})
    if (fs::is_regular_file(beside(folder, name))) return beside(folder, name);
  std::vector<std::string> indexes;
  for (const std::string& name : list_folder(folder))
    if (fs::path(name).extension() == ".json" && fs::path(name).stem().extension() == ".index") indexes.push_back(name);
  require(!indexes.empty(), Status::kNotFound, "'", folder, "' has no ", kWeightsName, ", ", kSafeWeightsName,
          " or index (*", kIndexExtension, "); expected the folder of a model");
  require(indexes.size() == 1, Status::kInvalidState, "'", folder, "' has two indexes, '", indexes[0], "' and '",
          indexes.size() > 1 ? indexes[1] : "", "'; name one of them, or remove the other");
  return beside(folder, indexes[0]);
}

}  // namespace

std::vector<std::string> save_model(const std::string& folder, const NamedTensors& tensors,
                                    const SaveModelSettings& settings, FileSystem& files) {
  return ModelWriter(folder, settings, files).write(tensors);
}

NamedTensors load_state_dict(const std::string& path, Framework framework) {
  std::error_code error;
  const std::string file = fs::is_directory(path, error) ? find_model(path) : path;
  if (fs::path(file).extension() == ".json") return load_sharded(file, framework);
  NamedTensors tensors;
  append_file(file, framework, tensors);
  return tensors;
}

}  // namespace accel::checkpoint
