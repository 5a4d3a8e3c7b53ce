// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save_training_state.hpp"

#include <ATen/core/Tensor.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/chunk_file.hpp"
#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/files/file_hash.hpp"
#include "checkpoint/folder_layout.hpp"
#include "checkpoint/formats/sharded_index.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "os/list_folder.hpp"
#include "os/mapped_file.hpp"
#include "os/regular_file.hpp"
#include "os/system_error.hpp"
#include "tensor/device/host_ring.hpp"
#include "tensor/tree.hpp"
#include "trace/span.hpp"

namespace accel::checkpoint {
namespace {

// The existing folder will be removed, so all of it must be a checkpoint.
void check_replaceable(const Target& target) {
  namespace fs = std::filesystem;
  std::error_code error;
  require(fs::is_directory(target.parent, error), Status::kIo, "the folder '", target.parent,
          "' does not exist; make it before '", target.name, "' is saved in it");
  const fs::file_status status = fs::symlink_status(target.full(), error);
  if (!fs::exists(status)) return;
  require(fs::is_directory(status), Status::kAlreadyExists, "'", target.full(),
          "' is not a folder; expected a folder or a free name");
  const std::string folder = target.full();
  Manifest former;
  if (has_manifest(folder)) former = load_manifest(folder);
  std::unordered_set<std::string> listed;  // files of ours, and folders of files that were added
  for (const FileRecord& file : former.files) listed.insert(file.name.substr(0, file.name.find('/')));
  for (const std::string& name : list_folder(folder))
    require(listed.count(name) > 0 || is_checkpoint_file(name), Status::kAlreadyExists, "'", folder, "' holds '", name,
            "', which is not part of a checkpoint; move it away or save elsewhere");
}

// Keeps nothing of what is written: to know the size and the hash of a file without writing it.
class NoFiles final : public FileSystem {
 public:
  int create_file(const char*) override { return ::open("/dev/null", O_WRONLY | O_CLOEXEC); }
  int sync(int) override { return 0; }
  int set_direct(int, bool) override {
    errno = EINVAL;
    return -1;
  }
};

class FolderWriter {
 public:
  FolderWriter(std::string folder, const SaveOptions& options, FileSystem& files)
      : folder_(std::move(folder)), options_(options), files_(files) {
    if (options.incremental && has_manifest(options.previous)) previous_ = load_manifest(options.previous);
  }

  void write(const std::string& name, const c10::IValue& value) {
    if (share(name, value)) return;
    OutputFile output(folder_ + "/" + name, files_);
    write_value(output, value, static_cast<int>(options_.compression_level));
    finish(name, output, [&] { return holds_value(output.path(), value); });
  }

  void write_text(const std::string& name, const std::string& document) {
    OutputFile output(folder_ + "/" + name, files_);
    output.write(document.data(), document.size());
    finish(name, output, [] { return true; });
  }

  void write_chunks(const std::string& name, const SafetensorsContents& chunks) {
    OutputFile output(folder_ + "/" + name, files_);
    write_safetensors(output, chunks.tensors, chunks.metadata);
    finish(name, output, [&] { return has_header_of(output.path(), chunks.tensors, chunks.metadata); });
  }

  const std::vector<FileRecord>& records() const { return records_; }

 private:
  void finish(const std::string& name, OutputFile& output, const std::function<bool()>& is_as_given) {
    output.finish();
    read_back(output.path(), [&] { return is_as_given() && is_as_written(output); });
    records_.push_back({name, output.size(), output.hash()});
  }

  // Whether the former checkpoint has the same file, which is shared then.
  bool share(const std::string& name, const c10::IValue& value) {
    const FileRecord* const former = previous_.find(name);
    if (former == nullptr) return false;
    NoFiles none;
    OutputFile measured(name, none);
    write_value(measured, value, static_cast<int>(options_.compression_level));
    measured.finish();
    if (measured.size() != former->size || measured.hash() != former->hash) return false;
    const std::string existing = options_.previous + "/" + name, path = folder_ + "/" + name;
    struct stat status {};
    if (::stat(existing.c_str(), &status) != 0 || static_cast<uint64_t>(status.st_size) != former->size) return false;
    if (files_.share_file(existing.c_str(), path.c_str()) != 0) return false;  // on another disk, or too many links
    records_.push_back(*former);
    return true;
  }

  std::string folder_;
  const SaveOptions& options_;
  FileSystem& files_;
  Manifest previous_;
  std::vector<FileRecord> records_;
};

// A model in two files with an index, so that the one with the frozen tensors can be shared.
void write_in_shards(FolderWriter& writer, const WriteItem& item, const StateEntry& entry) {
  ShardedIndex index;
  std::array<c10::impl::GenericDict, 2> shards = {tree::new_map(), tree::new_map()};  // frozen, others
  std::unordered_set<const void*> counted;
  for (const auto& member : entry.state.toGenericDict()) {
    const std::string& name = member.key().toStringRef();
    const at::Tensor& tensor = member.value().toTensor();
    const size_t shard = entry.frozen.count(name) > 0 ? 0 : 1;
    shards[shard].insert(name, tensor);
    index.weight_map.emplace_back(name, item.shards[shard]);
    if (counted.insert(tensor.const_data_ptr()).second) index.total_size += tensor.nbytes();
  }
  for (size_t shard = 0; shard < shards.size(); shard++) writer.write(item.shards[shard], shards[shard]);
  writer.write_text(item.name, print_sharded_index(index));
}

void write_item(FolderWriter& writer, const WriteItem& item, const StateEntry& entry) {
  if (!item.shards.empty()) return write_in_shards(writer, item, entry);
  if (item.chunks.empty()) return writer.write(item.name, entry.state);
  const SplitState split = split_chunks(entry.state, entry.kind == StateKind::kModel);
  if (!item.name.empty()) writer.write(item.name, split.rest);
  writer.write_chunks(item.chunks, split.chunks);
}

void write_own(FolderWriter& writer, const SavePlan& plan, const TrainingState& state) {
  auto generators = tree::new_map(), own = tree::new_map();
  auto loaders = tree::new_list();
  for (const StateEntry& entry : state) {
    if (entry.kind == StateKind::kRandom) generators.insert(entry.name, entry.state);
    if (entry.kind == StateKind::kDataloader) loaders.push_back(entry.state);
    if (entry.kind == StateKind::kRankState) own.insert(entry.name, entry.state);
  }
  own.insert(kDataloadersKey, loaders);
  writer.write(plan.random_states, generators);
  writer.write(plan.rank_states, own);
}

// Lists the files below a folder, and syncs the names in the folders inside of it.
void collect_files(const std::string& folder, const std::string& below, FileSystem& files,
                   std::vector<std::string>& found) {
  if (!below.empty()) sync_folder(files, folder + "/" + below);
  for (const std::string& name : list_folder(folder + "/" + below)) {
    const std::string path = below + name;
    struct stat status {};
    if (::lstat((folder + "/" + path).c_str(), &status) != 0) fail_system(Status::kIo, "look at", folder + "/" + path);
    if (S_ISDIR(status.st_mode))
      collect_files(folder, path + "/", files, found);
    else
      found.push_back(path);
  }
}

// Records files that hooks of the application have added to the folder.
void add_other_files(const std::string& folder, FileSystem& files, std::vector<FileRecord>& records) {
  std::unordered_set<std::string> listed;
  for (const FileRecord& record : records) listed.insert(record.name);
  std::vector<std::string> found;
  collect_files(folder, "", files, found);
  std::sort(found.begin(), found.end());
  for (const std::string& name : found) {
    if (listed.count(name) > 0) continue;
    const RegularFile file(folder + "/" + name);
    if (files.sync(file.descriptor()) != 0) fail_system(Status::kIo, "sync", file.path());
    records.push_back({name, file.size(), hash_of_file(MappedFile(file))});
  }
}

void write_manifest(const std::string& folder, const std::vector<std::string>& reports, const SaveOptions& options,
                    const Ranks& ranks, FileSystem& files) {
  Manifest manifest;
  manifest.library = options.library;
  manifest.libtorch = TORCH_VERSION;
  manifest.world_size = ranks.size;
  manifest.hash_block = kHashBlock;
  manifest.mesh = options.mesh;
  manifest.iteration = options.iteration;
  std::unordered_set<std::string> names;
  for (const std::string& report : reports)
    for (FileRecord& record : parse_file_records(report, folder)) {
      require(names.insert(record.name).second, Status::kInternal, "two ranks wrote '", record.name, "'");
      manifest.files.push_back(std::move(record));
    }
  add_other_files(folder, files, manifest.files);
  const std::string document = print_manifest(manifest);
  OutputFile output(folder + "/" + kManifestName, files);
  output.write(document.data(), document.size());
  output.finish();
  read_back(output.path(), [&] { return print_manifest(load_manifest(folder)) == document; });
}

}  // namespace

TrainingStateWriter::TrainingStateWriter(std::string folder, SaveOptions options, const Ranks& ranks, FileSystem& files)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      files_(!options_.durable && &files == &system_files() ? unsynced_files() : files) {
  const std::vector<std::string> names = run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.writer() != 0) return {};
    check_replaceable(Target(folder_));
    target_ = std::make_unique<AtomicFolder>(folder_, files_);
    return target_->temporary();
  });
  temporary_ = names.front();
}

TrainingState TrainingStateWriter::collect(const CollectState& collect, const Ranks& ranks) {
  TrainingState state;
  const std::vector<std::string> offers = run_on_all_ranks(ranks, [&] {
    state = collect(temporary_);
    return offer_files(state, options_);
  });
  plan_ = plan_save(state, offers, ranks);
  return state;
}

void TrainingStateWriter::drop_others(TrainingState& state) const {
  std::unordered_set<size_t> written;
  for (const WriteItem& item : plan_.items) written.insert(item.entry);
  for (size_t i = 0; i < state.size(); i++)
    if (!is_per_rank(state[i].kind) && written.count(i) == 0) state[i].state = {};
}

void TrainingStateWriter::write(const TrainingState& state, const Ranks& ranks) {
  const Span written(SpanKind::kCheckpoint, "write checkpoint");
  // A small state takes a small ring.
  const auto useful = std::max<uint64_t>(2 * plan_.bytes, tensor::HostRing::kLeastBytes);
  const tensor::HostRing ring(std::min(static_cast<uint64_t>(options_.page_locked_bytes), useful));
  const std::vector<std::string> reports = run_on_all_ranks(ranks, [&] {
    struct stat status {};
    require(::stat(temporary_.c_str(), &status) == 0, Status::kIo, "'", temporary_, "', which rank ",
            ranks.first_of_folder, " made, is not there; the folder must be one that these ranks share");
    FolderWriter writer(temporary_, options_, files_);
    for (const WriteItem& item : plan_.items) write_item(writer, item, state[item.entry]);
    write_own(writer, plan_, state);
    return print_file_records(writer.records());
  });

  run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.writer() != 0) return {};
    write_manifest(temporary_, reports, options_, ranks, files_);
    target_->commit(options_.may_replace);
    return {};
  });
}

void save_training_state(const std::string& folder, const CollectState& collect, const SaveOptions& options,
                         const Ranks& ranks, FileSystem& files) {
  TrainingStateWriter writer(folder, options, ranks, files);
  const TrainingState state = writer.collect(collect, ranks);
  writer.write(state, ranks);
}

}  // namespace accel::checkpoint
