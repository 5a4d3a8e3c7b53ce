// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/fsdp_files.hpp"

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/files/atomic_folder.hpp"
#include "checkpoint/formats/file_names.hpp"
#include "checkpoint/formats/torch/distributed_checkpoint.hpp"
#include "checkpoint/formats/torch/distributed_checkpoint_writer.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "checkpoint/optimizer_names.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "os/list_folder.hpp"
#include "os/mapped_file.hpp"
#include "os/system_error.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

const char* key_of(StateKind kind) { return kind == StateKind::kModel ? "model" : "optimizer"; }

void check_replaceable(const std::string& folder) {
  if (!is_folder(folder)) return;
  for (const std::string& name : list_folder(folder))
    require(is_distributed_file(name), Status::kAlreadyExists, "'", folder, "' holds '", name,
            "', which is not part of a distributed checkpoint; move it away or save elsewhere");
}

// Files of an earlier save would be taken for a part of this one.
void remove_files_of_more_ranks(const std::string& folder, const FsdpFile& file, int rank) {
  for (std::string path;; rank++) {
    path = folder + "/" + fsdp_name(file, rank);
    if (!std::filesystem::exists(path)) return;
    if (system_files().remove_file(path.c_str()) != 0) fail_system(Status::kIo, "remove", path);
  }
}

void save_folder(const std::string& path, const FsdpFile& file, const c10::IValue& state, const Ranks& ranks) {
  std::unique_ptr<AtomicFolder> target;
  const std::string temporary = run_on_all_ranks(ranks, [&]() -> std::string {
                                  if (ranks.rank != 0) return {};
                                  check_replaceable(path);
                                  target = std::make_unique<AtomicFolder>(path);
                                  return target->temporary();
                                }).front();
  const std::vector<std::string> written = run_on_all_ranks(ranks, [&] {
    require(is_folder(temporary), Status::kIo, "'", temporary,
            "', which rank 0 made, is not there; the folder must be one that the ranks share");
    auto state_dict = tree::new_map();
    state_dict.insert(std::string(key_of(file.kind)), state);
    return write_distributed_chunks(temporary, ranks.rank, state_dict, ranks.rank == 0);
  });
  run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.rank != 0) return {};
    write_distributed_list(temporary, written);
    target->commit();
    return {};
  });
}

}  // namespace

std::string fsdp_name(const FsdpFile& file, int rank) {
  const std::string name = file.kind == StateKind::kModel ? kFsdpModelName : kOptimizerName;
  const std::string number = text("_", file.index), number_unless_first = file.index == 0 ? "" : number;
  switch (file.layout) {
    case FsdpLayout::kOneFile:
      return text(name, number_unless_first, ".bin");
    case FsdpLayout::kFolder:
      return name + number;
    case FsdpLayout::kFileOfEachRank:
      return text(name, file.has_index_always ? number : number_unless_first, "_rank", rank, ".bin");
  }
  fail(Status::kInternal, "a layout without a name");
}

void save_fsdp_state(const std::string& folder, const FsdpFile& file, const c10::IValue& state, const Ranks& ranks) {
  const std::string path = folder + "/" + fsdp_name(file, ranks.rank);
  if (file.layout == FsdpLayout::kFolder) return save_folder(path, file, state, ranks);
  // No file gets its name before all are written.
  const bool is_of_ranks = file.layout == FsdpLayout::kFileOfEachRank;
  std::unique_ptr<AtomicFile> written;
  run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.rank != 0 && !is_of_ranks) return {};
    written = std::make_unique<AtomicFile>(path);
    write_torch_file(written->output(), state);
    written->output().finish();
    read_back(written->output().path(), [&] { return is_as_written(written->output()); });
    return {};
  });
  run_on_all_ranks(ranks, [&]() -> std::string {
    if (written != nullptr) written->commit();
    return {};
  });
  if (is_of_ranks)
    run_on_all_ranks(ranks, [&]() -> std::string {
      if (ranks.rank == 0) remove_files_of_more_ranks(folder, file, ranks.size);
      return {};
    });
}

FsdpState load_fsdp_state(const std::string& folder, const FsdpFile& file, const Ranks& ranks) {
  FsdpState found;
  found.path = folder + "/" + fsdp_name(file, ranks.rank);
  if (file.layout == FsdpLayout::kFolder) {
    if (is_distributed_checkpoint(folder)) found.path = folder;
    require(is_folder(found.path), Status::kNotFound, "'", found.path, "' does not exist; expected the folder of the ",
            key_of(file.kind), " as SHARDED_STATE_DICT writes it");
    found.state = read_distributed_state(found.path, key_of(file.kind));
  } else {
    const std::string next = folder + "/" + fsdp_name(file, ranks.size);
    require(file.layout != FsdpLayout::kFileOfEachRank || !std::filesystem::exists(next), Status::kInvalidState,
            "there is '", next, "', so that the files are of more ranks than ", ranks.size,
            "; load files of ranks on as many as saved them");
    found.state = read_torch_file(std::make_shared<const MappedFile>(found.path));
  }
  if (file.kind == StateKind::kModel) found.state = with_unwrapped_names(found.state);
  return found;
}

}  // namespace accel::checkpoint
