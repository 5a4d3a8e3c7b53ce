#include "checkpoint/training_state.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "base/error.hpp"
#include "base/list_folder.hpp"
#include "checkpoint/files/atomic_folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "checkpoint/value_file.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

struct KindOfState {
  const char* stem;    // of its files' names
  const char* plural;  // for messages
  ValueContainer container;
};
// In the order of StateKind.
constexpr KindOfState kKinds[] = {
    {"model", "models", ValueContainer::kSafetensors},
    {"optimizer", "optimizers", ValueContainer::kSafetensors},
    {"scheduler", "schedulers", ValueContainer::kByContent},
    {"custom_", "registered objects", ValueContainer::kByContent},
    {"dataloader_", "data loaders", ValueContainer::kByContent},
    {"random_states_", "states of ranks", ValueContainer::kSafetensors},
};
constexpr StateKind kPerRank[] = {StateKind::kDataloader, StateKind::kRankState};
constexpr const char* kExtensions[] = {".safetensors", ".json"};

const KindOfState& kind_of(StateKind kind) { return kKinds[static_cast<size_t>(kind)]; }

// "model", "model_1", "model_2", as the reference numbers them.
std::string numbered(const char* stem, size_t index) { return index == 0 ? stem : text(stem, "_", index); }

// The names of the files of entries that rank 0 writes.
class Stems {
 public:
  std::string next(const StateEntry& entry) {
    const char* const stem = kind_of(entry.kind).stem;
    if (entry.kind == StateKind::kCustom) return stem + entry.name;
    return numbered(stem, counts_[static_cast<size_t>(entry.kind)]++);
  }

 private:
  size_t counts_[std::size(kKinds)] = {};
};

size_t count_of(const TrainingState& state, StateKind kind) {
  return static_cast<size_t>(
      std::count_if(state.begin(), state.end(), [kind](const StateEntry& entry) { return entry.kind == kind; }));
}

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
  for (const KindOfState& kind : kKinds)
    if (starts_with(stem, kind.stem)) return true;
  return false;
}

// The existing folder will be removed, so it must be an older training state.
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
  Stems stems;
  for (const StateEntry& entry : state) {
    if (is_per_rank(entry.kind)) continue;
    if (entry.kind == StateKind::kCustom) check_custom_name(entry.name);
    const std::string stem = stems.next(entry);
    if (entry.kind == StateKind::kModel)
      writer.write_model(stem, model_tensors(entry.state));
    else
      writer.write_tree(stem, entry.state, kind_of(entry.kind).container);
  }
}

void write_own(FolderWriter& writer, const TrainingState& state, int rank) {
  auto loaders = tree::new_list();
  auto rank_state = tree::new_map();
  for (const StateEntry& entry : state) {
    if (entry.kind == StateKind::kDataloader) loaders.push_back(entry.state);
    if (entry.kind == StateKind::kRankState) rank_state.insert(entry.name, entry.state);
  }
  const auto write = [&](StateKind kind, const c10::IValue& value) {
    writer.write_tree(text(kind_of(kind).stem, rank), value, kind_of(kind).container);
  };
  write(StateKind::kDataloader, loaders);
  write(StateKind::kRankState, rank_state);
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
  size_t count(StateKind kind) const {
    size_t count = 0;
    while (find(numbered(kind_of(kind).stem, count)) != nullptr) count++;
    return count;
  }

  void check_count(StateKind kind, size_t found, size_t expected) const {
    require(found == expected, Status::kInvalidState, "'", folder_, "' holds ", found, " ", kind_of(kind).plural,
            " and ", expected, " are prepared; prepare the same objects as when it was saved");
  }

  // The per-rank states of one rank: those of these entries, in order.
  std::vector<c10::IValue> read_own(StateKind kind, int rank, const TrainingState& like) const {
    const c10::IValue saved = read_tree(text(kind_of(kind).stem, rank));
    if (kind == StateKind::kDataloader) {
      check_count(kind, saved.isList() ? saved.toListRef().size() : 0, count_of(like, kind));
      return saved.toListRef().vec();
    }
    require(saved.isGenericDict(), Status::kCorrupt, "the saved random states are no map");
    const auto map = saved.toGenericDict();
    std::vector<c10::IValue> states;
    for (const StateEntry& entry : like) {
      if (entry.kind != kind) continue;
      const auto found = map.find(entry.name);
      const bool is_saved = found != map.end();
      require(is_saved || entry.may_be_missing, Status::kCorrupt, "the saved random states lack '", entry.name, "'");
      states.push_back(is_saved ? found->value() : c10::IValue());
    }
    return states;
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
  const std::string_view stem = kind_of(StateKind::kCustom).stem;
  for (const FileRecord& file : manifest.files) {
    if (!starts_with(file.name, stem)) continue;
    const std::string_view name = without_extension(file.name).substr(stem.size());
    const bool known = std::any_of(like.begin(), like.end(), [&](const StateEntry& entry) {
      return entry.kind == StateKind::kCustom && entry.name == name;
    });
    require(known, Status::kInvalidState, "'", folder, "' holds the state of '", name,
            "', which is not registered; register the same objects as when it was saved");
  }
}

// Into the entries of that kind.
void read_own(const FolderReader& reader, StateKind kind, const Ranks& ranks, int saved_by, TrainingState& state) {
  const bool same_ranks = saved_by == ranks.size;
  for (int rank = 0; rank < saved_by; rank++) {
    if (same_ranks && rank != ranks.rank) continue;
    auto states = reader.read_own(kind, rank, state);
    size_t next = 0;
    for (StateEntry& entry : state) {
      if (entry.kind != kind) continue;
      if (same_ranks)
        entry.state = std::move(states[next++]);
      else
        entry.of_ranks.push_back(std::move(states[next++]));
    }
  }
}

TrainingState read_state(const std::string& folder, const TrainingState& like, const Ranks& ranks) {
  const Manifest manifest = load_manifest(folder);
  const FolderReader reader(folder, manifest);
  for (const StateKind kind : {StateKind::kModel, StateKind::kOptimizer, StateKind::kScheduler})
    reader.check_count(kind, reader.count(kind), count_of(like, kind));
  check_custom_names(manifest, like, folder);

  TrainingState state = like;
  Stems stems;
  for (StateEntry& entry : state) {
    if (is_per_rank(entry.kind)) continue;
    const std::string stem = stems.next(entry);
    if (entry.kind == StateKind::kModel) {
      const NamedTensors tensors = reader.read_model(stem).tensors;
      check_model(tensors, model_tensors(entry.state), reader.path(stem + ".safetensors"));
      entry.state = model_state(tensors);
    } else {
      entry.state = reader.read_tree(stem);
    }
  }
  for (const StateKind kind : kPerRank) read_own(reader, kind, ranks, manifest.world_size, state);
  return state;
}

}  // namespace

bool is_per_rank(StateKind kind) {
  return std::find(std::begin(kPerRank), std::end(kPerRank), kind) != std::end(kPerRank);
}

c10::IValue model_state(const NamedTensors& tensors) {
  auto map = tree::new_map();
  for (const auto& [name, tensor] : tensors) map.insert(name, tensor);
  return map;
}

NamedTensors model_tensors(const c10::IValue& state) {
  NamedTensors tensors;
  for (const auto& entry : state.toGenericDict())
    tensors.emplace_back(entry.key().toStringRef(), entry.value().toTensor());
  return tensors;
}

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
  const std::vector<std::string> names = run_on_all_ranks(ranks, [&]() -> std::string {
    state = collect();
    if (ranks.rank != 0) return {};
    check_replaceable(Target(folder));
    target.emplace(folder, files);
    return target->temporary();
  });
  const std::string& temporary = names.front();

  const std::vector<std::string> reports = run_on_all_ranks(ranks, [&] {
    struct stat status {};
    require(::stat(temporary.c_str(), &status) == 0, Status::kIo, "'", temporary,
            "', which rank 0 made, is not there; the folder must be one that all ranks share");
    FolderWriter writer(temporary, files);
    if (ranks.rank == 0) write_shared(writer, state);
    write_own(writer, state, ranks.rank);
    return print_file_records(writer.records());
  });

  run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.rank != 0) return {};
    write_manifest(temporary, reports, files);
    target->commit();
    return {};
  });
}

TrainingState load_training_state(const std::string& folder, const TrainingState& like, const Ranks& ranks) {
  run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.rank == 0) recover_folder(folder);
    return {};
  });
  TrainingState state;
  run_on_all_ranks(ranks, [&]() -> std::string {
    state = read_state(folder, like, ranks);
    return {};
  });
  return state;
}

}  // namespace accel::checkpoint
