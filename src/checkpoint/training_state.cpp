#include "checkpoint/training_state.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "base/error.hpp"
#include "base/list_folder.hpp"
#include "checkpoint/atomic_folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/together.hpp"
#include "checkpoint/value_file.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kScheduler = "scheduler";
constexpr const char* kCustom = "custom_";
constexpr const char* kDataloader = "dataloader_";
constexpr const char* kRandomStates = "random_states_";
constexpr const char* kExtensions[] = {".safetensors", ".json"};

// "model", "model_1", "model_2", as the reference numbers them.
std::string numbered(const char* stem, size_t index) { return index == 0 ? stem : text(stem, "_", index); }

bool starts_with(std::string_view name, std::string_view start) { return name.substr(0, start.size()) == start; }

std::string_view without_extension(std::string_view name) {
  for (const std::string_view extension : kExtensions)
    if (name.size() > extension.size() && name.substr(name.size() - extension.size()) == extension)
      return name.substr(0, name.size() - extension.size());
  return {};
}

bool is_name_of_ours(std::string_view name) {
  if (name == kManifestName) return true;
  const std::string_view stem = without_extension(name);
  for (const char* start : {kModel, kOptimizer, kScheduler, kCustom, kDataloader, kRandomStates})
    if (starts_with(stem, start)) return true;
  return false;
}

// Whatever has the name will be removed: it must be nothing but an older training state.
void check_replaceable(const Target& target) {
  namespace fs = std::filesystem;
  std::error_code error;
  require(fs::is_directory(target.parent, error), Status::kIo, "the folder '", target.parent,
          "' does not exist; make it before '", target.name, "' is saved in it");
  const fs::file_status status = fs::symlink_status(target.full(), error);
  if (!fs::exists(status)) return;
  require(fs::is_directory(status), Status::kAlreadyExists, "'", target.full(),
          "' is no folder; expected a folder or a free name");
  const std::vector<std::string> names = list_folder(target.full());
  for (const std::string& name : names)
    require(is_name_of_ours(name), Status::kAlreadyExists, "'", target.full(), "' holds '", name,
            "', which is no part of a training state; move it away or save elsewhere");
  const bool has_manifest = std::find(names.begin(), names.end(), kManifestName) != names.end();
  require(names.empty() || has_manifest, Status::kAlreadyExists, "'", target.full(), "' holds files but no ",
          kManifestName, "; move them away or save elsewhere");
}

class FolderWriter {
 public:
  FolderWriter(std::string folder, FileSystem& files) : folder_(std::move(folder)), files_(files) {}

  void write_model(const std::string& stem, const NamedTensors& tensors) {
    const SafetensorsContents contents = drop_tied(tensors, {{"format", "pt"}});
    write(
        stem + ".safetensors",
        [&](OutputFile& output) { write_safetensors(output, contents.tensors, contents.metadata); },
        [&](const std::string& path) { return has_header_of(path, contents.tensors, contents.metadata); });
  }

  void write_tree(const std::string& stem, const c10::IValue& value, ValueContainer container) {
    write(
        text(stem, ".", value_extension(value, container)), [&](OutputFile& output) { write_value(output, value); },
        [&](const std::string& path) { return holds_value(path, value); });
  }

  const std::vector<FileRecord>& records() const { return records_; }

 private:
  template <typename Body, typename Check>
  void write(const std::string& name, Body&& body, Check&& is_as_given) {
    OutputFile output(folder_ + "/" + name, files_);
    body(output);
    output.finish();
    read_back(output.path(), [&] { return is_as_given(output.path()); });
    records_.push_back({name, output.size(), output.checksum()});
  }

  std::string folder_;
  FileSystem& files_;
  std::vector<FileRecord> records_;
};

void write_shared(FolderWriter& writer, const TrainingState& state) {
  for (size_t i = 0; i < state.models.size(); i++) writer.write_model(numbered(kModel, i), state.models[i]);
  for (size_t i = 0; i < state.optimizers.size(); i++)
    writer.write_tree(numbered(kOptimizer, i), state.optimizers[i], ValueContainer::kSafetensors);
  for (size_t i = 0; i < state.schedulers.size(); i++)
    writer.write_tree(numbered(kScheduler, i), state.schedulers[i], ValueContainer::kByContent);
  for (const auto& [name, value] : state.custom) {
    check_custom_name(name);
    writer.write_tree(kCustom + name, value, ValueContainer::kByContent);
  }
}

c10::IValue list_of(const std::vector<c10::IValue>& values) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const c10::IValue& value : values) list.push_back(value);
  return list;
}

void write_own(FolderWriter& writer, const TrainingState& state, int rank) {
  writer.write_tree(text(kDataloader, rank), list_of(state.dataloaders), ValueContainer::kByContent);
  writer.write_tree(text(kRandomStates, rank), state.random_states, ValueContainer::kSafetensors);
}

void write_manifest(const std::string& folder, const std::vector<std::string>& reports, FileSystem& files) {
  Manifest manifest;
  manifest.world_size = static_cast<int>(reports.size());
  for (const std::string& report : reports)
    for (FileRecord& record : parse_file_records(report, folder)) manifest.files.push_back(std::move(record));
  const std::string document = print_manifest(manifest);
  OutputFile output(folder + "/" + kManifestName, files);
  output.write(document.data(), document.size());
  output.finish();
  read_back(output.path(), [&] { return print_manifest(load_manifest(folder)) == document; });
}

class FolderReader {
 public:
  FolderReader(std::string folder, const Manifest& manifest) : folder_(std::move(folder)), manifest_(manifest) {}

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  SafetensorsContents read_model(const std::string& stem) const {
    SafetensorsContents contents = read_safetensors(open_verified(folder_, record(stem)));
    restore_tied(contents);
    return contents;
  }

  c10::IValue read_tree(const std::string& stem) const { return read_value(open_verified(folder_, record(stem))); }

  // How many of "model", "model_1", ... there are.
  size_t count(const char* stem) const {
    size_t count = 0;
    while (find(numbered(stem, count)) != nullptr) count++;
    return count;
  }

  void check_count(const char* stem, const char* what, size_t expected) const {
    require(count(stem) == expected, Status::kInvalidState, "'", folder_, "' holds ", count(stem), " ", what, " and ",
            expected, " are prepared; prepare the same objects as when it was saved");
  }

 private:
  const FileRecord* find(const std::string& stem) const {
    for (const char* extension : kExtensions)
      if (const FileRecord* found = manifest_.find(stem + extension)) return found;
    return nullptr;
  }

  const FileRecord& record(const std::string& stem) const {
    const FileRecord* found = find(stem);
    require(found != nullptr, Status::kNotFound, "'", folder_, "' holds no '", stem, "'; its ", kManifestName,
            " does not list it");
    return *found;
  }

  std::string folder_;
  const Manifest& manifest_;
};

std::string shape_text(const at::Tensor& tensor) {
  std::string result = "[";
  for (const int64_t size : tensor.sizes()) result += (result.size() > 1 ? ", " : "") + std::to_string(size);
  return result + "]";
}

// The same names and shapes; dtypes may differ, because loading converts.
void check_model(const NamedTensors& loaded, const NamedTensors& current, const std::string& path) {
  const std::unordered_map<std::string, at::Tensor> by_name(loaded.begin(), loaded.end());
  for (const auto& [name, tensor] : current) {
    const auto found = by_name.find(name);
    require(found != by_name.end(), Status::kNotFound, "'", path, "' has no tensor '", name, "', which the model has");
    require(found->second.sizes() == tensor.sizes(), Status::kShapeMismatch, "tensor '", name, "' in '", path,
            "' has the shape ", shape_text(found->second), "; that of the model has ", shape_text(tensor));
  }
  std::unordered_map<std::string, at::Tensor> expected(current.begin(), current.end());
  for (const auto& [name, tensor] : loaded)
    require(expected.count(name) > 0, Status::kInvalidState, "'", path, "' has a tensor '", name,
            "', which the model lacks");
}

void check_custom_names(const Manifest& manifest, const TrainingState& like, const std::string& folder) {
  for (const FileRecord& file : manifest.files) {
    if (!starts_with(file.name, kCustom)) continue;
    const std::string_view name = without_extension(file.name).substr(std::string_view(kCustom).size());
    const bool known =
        std::any_of(like.custom.begin(), like.custom.end(), [&](const auto& entry) { return entry.first == name; });
    require(known, Status::kInvalidState, "'", folder, "' holds the state of '", name,
            "', which is not registered; register the same objects as when it was saved");
  }
}

TrainingState read_state(const std::string& folder, const TrainingState& like, const Ranks& ranks) {
  const Manifest manifest = load_manifest(folder);
  const FolderReader reader(folder, manifest);
  reader.check_count(kModel, "models", like.models.size());
  reader.check_count(kOptimizer, "optimizers", like.optimizers.size());
  reader.check_count(kScheduler, "schedulers", like.schedulers.size());
  check_custom_names(manifest, like, folder);

  TrainingState state;
  for (size_t i = 0; i < like.models.size(); i++) {
    const std::string stem = numbered(kModel, i);
    state.models.push_back(reader.read_model(stem).tensors);
    check_model(state.models.back(), like.models[i], reader.path(stem + ".safetensors"));
  }
  for (size_t i = 0; i < like.optimizers.size(); i++)
    state.optimizers.push_back(reader.read_tree(numbered(kOptimizer, i)));
  for (size_t i = 0; i < like.schedulers.size(); i++)
    state.schedulers.push_back(reader.read_tree(numbered(kScheduler, i)));
  for (const auto& [name, value] : like.custom) state.custom.emplace_back(name, reader.read_tree(kCustom + name));

  const bool same_ranks = manifest.world_size == ranks.size;
  const c10::IValue loaders = reader.read_tree(text(kDataloader, same_ranks ? ranks.rank : 0));
  require(loaders.isList() && loaders.toListRef().size() == like.dataloaders.size(), Status::kInvalidState, "'", folder,
          "' holds ", loaders.isList() ? loaders.toListRef().size() : 0, " data loaders and ", like.dataloaders.size(),
          " are prepared; prepare the same objects as when it was saved");
  state.dataloaders = loaders.toListRef().vec();
  state.random_states = reader.read_tree(text(kRandomStates, ranks.rank % manifest.world_size));
  for (int rank = 0; !same_ranks && rank < manifest.world_size; rank++)
    state.random_states_of_all.push_back(reader.read_tree(text(kRandomStates, rank)));
  return state;
}

}  // namespace

void check_custom_name(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  constexpr size_t kLongest = 128;
  require(!name.empty() && name.size() <= kLongest && name.front() != '.' &&
              name.find_first_not_of(kAllowed) == std::string::npos,
          Status::kInvalidArgument, "the name '", name, "' cannot be part of a file name; expected up to ", kLongest,
          " letters, digits, '_', '-' and '.'");
}

void save_training_state(const std::string& folder, const TrainingState& state, const Ranks& ranks, FileSystem& files) {
  save_training_state(
      folder, [&] { return state; }, ranks, files);
}

void save_training_state(const std::string& folder, const std::function<TrainingState()>& collect, const Ranks& ranks,
                         FileSystem& files) {
  TrainingState state;
  std::optional<AtomicFolder> target;
  const std::vector<std::string> names = together(ranks, [&]() -> std::string {
    state = collect();
    if (ranks.rank != 0) return {};
    check_replaceable(Target(folder));
    target.emplace(folder, files);
    return target->temporary();
  });
  const std::string& temporary = names.front();

  const std::vector<std::string> reports = together(ranks, [&] {
    struct stat status {};
    require(::stat(temporary.c_str(), &status) == 0, Status::kIo, "'", temporary,
            "', which rank 0 made, is not there; the folder must be one that all ranks share");
    FolderWriter writer(temporary, files);
    if (ranks.rank == 0) write_shared(writer, state);
    write_own(writer, state, ranks.rank);
    return print_file_records(writer.records());
  });

  together(ranks, [&]() -> std::string {
    if (ranks.rank != 0) return {};
    write_manifest(temporary, reports, files);
    target->commit();
    return {};
  });
}

TrainingState load_training_state(const std::string& folder, const TrainingState& like, const Ranks& ranks) {
  together(ranks, [&]() -> std::string {
    if (ranks.rank == 0) recover_folder(folder);
    return {};
  });
  TrainingState state;
  together(ranks, [&]() -> std::string {
    state = read_state(folder, like, ranks);
    return {};
  });
  return state;
}

}  // namespace accel::checkpoint
