// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load_training_state.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/chunk_file.hpp"
#include "checkpoint/files/atomic_folder.hpp"
#include "checkpoint/folder_layout.hpp"
#include "checkpoint/folder_reader.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_check.hpp"
#include "checkpoint/optimizer_names.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

size_t count_of(const TrainingState& state, StateKind kind) {
  return static_cast<size_t>(
      std::count_if(state.begin(), state.end(), [kind](const StateEntry& entry) { return entry.kind == kind; }));
}

size_t count_of_numbered(const TrainingState& state, StateKind kind) {
  return static_cast<size_t>(std::count_if(state.begin(), state.end(), [kind](const StateEntry& entry) {
    return entry.kind == kind && (kind != StateKind::kCustom || entry.name.empty());
  }));
}

class StateReader {
 public:
  StateReader(const std::string& folder, const LoadOptions& options, const Ranks& ranks)
      : folder_(folder), options_(options), ranks_(ranks), reader_(folder, options.verify) {}

  std::string manifest() const { return reader_.manifest(); }

  LoadedState read(const TrainingState& like) {
    check_counts(like);
    reader_.verify(names_of_shared(like));
    LoadedState loaded{like, std::nullopt};
    if (reader_.is_ours()) loaded.iteration = reader_.iteration();
    Stems stems;
    for (StateEntry& entry : loaded.entries)
      if (!is_per_rank(entry.kind)) {
        const std::string stem = stems.next(entry);
        if (!entry.is_left_out) read_shared(entry, stem);
      }
    read_generators(loaded.entries);
    read_rank_states(loaded.entries);
    return loaded;
  }

 private:
  // The names of the files that hold all of a state.
  std::vector<std::string> names_of_shared(const TrainingState& like) const {
    std::vector<std::string> names;
    Stems stems;
    for (const StateEntry& entry : like) {
      if (is_per_rank(entry.kind)) continue;
      const std::string stem = stems.next(entry);
      std::string name = entry.is_left_out ? std::string() : reader_.find(entry.kind, stem);
      if (!name.empty()) names.push_back(std::move(name));
    }
    return names;
  }

  // Accelerate's folders hold no objects with names, so none that a binding has registered for the application.
  bool may_lack(const StateEntry& entry) const {
    const bool is_foreign = !reader_.is_ours() && entry.kind == StateKind::kCustom && !entry.name.empty();
    // DeepSpeed's own schedules and loss scaling are in its folder, in forms of its own.
    const bool is_of_deepspeed =
        reader_.is_of_deepspeed() && (entry.kind == StateKind::kScheduler || entry.kind == StateKind::kScaler);
    return options_.allow_missing || entry.may_be_missing || is_foreign || is_of_deepspeed;
  }

  [[noreturn]] void refuse_lack(const std::string& what) const {
    fail(Status::kNotFound, "'", folder_, "' holds no ", what,
         "; prepare the same objects as when it was saved, or allow "
         "missing states");
  }

  void note_lack(const std::string& what) const {
    log(LogLevel::kWarning, "'", folder_, "' holds no ", what, ", which continues as it is");
  }

  void check_counts(const TrainingState& like) const {
    for (const StateKind kind : {StateKind::kModel, StateKind::kOptimizer, StateKind::kScheduler, StateKind::kCustom}) {
      const bool has_gaps = std::any_of(like.begin(), like.end(), [kind](const StateEntry& entry) {
        return entry.kind == kind && entry.is_left_out;
      });
      const size_t expected = count_of_numbered(like, kind);
      // Each of the others is looked for.
      const size_t found = has_gaps ? expected + reader_.count(kind, expected) : reader_.count(kind);
      const bool may_lack = options_.allow_missing || (kind == StateKind::kScheduler && reader_.is_of_deepspeed());
      require(found == expected || (may_lack && found < expected), Status::kInvalidState, "'", folder_, "' holds ",
              found, " ", plural_of(kind), " and ", expected,
              " are prepared; prepare the same objects as when it was saved");
    }
    std::unordered_set<std::string> known;
    Stems stems;
    for (const StateEntry& entry : like)
      if (entry.kind == StateKind::kCustom) known.insert(file_name(entry.kind, stems.next(entry), true, false));
    for (const std::string& name : reader_.names())
      require(!is_custom_file(name) || known.count(name) > 0, Status::kInvalidState, "'", folder_, "' holds '", name,
              "', the state of an object that is not registered; register the same objects as when it was saved");
  }

  void read_shared(StateEntry& entry, const std::string& stem) {
    const std::string name = reader_.find(entry.kind, stem);
    if (name.empty()) {
      if (!may_lack(entry)) refuse_lack("'" + stem + "'");
      note_lack("'" + stem + "'");
      entry.state = {};
      return;
    }
    c10::IValue state = reader_.read_shared(entry.kind, name, stem);
    if (state.isNone() && entry.kind == StateKind::kOptimizer) {  // which a warning has said
      entry.state = {};
      return;
    }
    if (entry.kind == StateKind::kOptimizer && is_by_names(state))
      state = numbered_optimizer_state(state, entry.groups, reader_.path(name));
    if (entry.kind == StateKind::kModel) check_model(state, entry.state, reader_.path(name));
    if (entry.takes_chunks) entry.check_chunks(state);
    entry.state = entry.takes_chunks ? std::move(state) : read_chunks(state);
    entry.is_loaded = true;
  }

  // Adds the state that one rank saved.
  void read_member(const c10::impl::GenericDict& saved, StateEntry& entry, int rank) const {
    const auto found = saved.find(entry.name);
    if (found != saved.end()) return add(entry, found->value());
    if (!may_lack(entry)) refuse_lack(text("'", entry.name, "' of rank ", rank));
    note_lack(text("'", entry.name, "' of rank ", rank));
  }

  c10::impl::GenericDict read_map(const std::string& name) const {
    const c10::IValue saved = reader_.read(name);
    require(saved.isGenericDict(), Status::kCorrupt, "'", reader_.path(name), "' holds a ", tree::kind_name(saved),
            "; expected a map");
    return saved.toGenericDict();
  }

  // Calls `read` for the ranks whose states this one needs: itself, or all if their number has changed.
  template <typename Read>
  void for_saving_ranks(Read&& read) const {
    if (reader_.world_size() == ranks_.size) return read(ranks_.rank);
    for (int rank = 0; rank < reader_.world_size(); rank++) read(rank);
  }

  void add(StateEntry& entry, c10::IValue state) const {
    if (reader_.world_size() != ranks_.size) return entry.of_ranks.push_back(std::move(state));
    entry.state = std::move(state);
    entry.is_loaded = true;
  }

  void read_generators(TrainingState& entries) const {
    if (reader_.world_size() == 0) {
      if (!options_.allow_missing) refuse_lack("random states");
      note_lack("random states");
    }
    for_saving_ranks([&](int rank) {
      const std::string name = random_states_name(rank);
      if (!reader_.has(name)) {
        if (!options_.allow_missing) refuse_lack(text("random states of rank ", rank));
        return note_lack(text("random states of rank ", rank));
      }
      const auto saved = read_map(name);
      for (StateEntry& entry : entries)
        if (entry.kind == StateKind::kRandom) read_member(saved, entry, rank);
    });
  }

  // Accelerate's folders have positions of loaders only as objects of torch and torchdata.
  void note_loaders_of_torch(const TrainingState& entries) const {
    if (count_of(entries, StateKind::kDataloader) == 0) return;
    for (const std::string& name : reader_.names())
      if (is_loader_of_torch(name))
        log(LogLevel::kWarning, "'", reader_.path(name),
            "' is the position of a data loader as torch keeps it, which is not read: the loader begins its epoch "
            "again, in an order of its own");
  }

  void read_rank_states(TrainingState& entries) const {
    if (!reader_.is_ours()) return note_loaders_of_torch(entries);
    for_saving_ranks([&](int rank) {
      const std::string name = rank_state_name(rank);
      if (!reader_.has(name)) {
        if (!options_.allow_missing) refuse_lack(text("states of rank ", rank));
        return note_lack(text("states of rank ", rank));
      }
      const auto saved = read_map(name);
      const auto loaders = saved.find(kDataloadersKey);
      require(loaders != saved.end() && loaders->value().isList(), Status::kCorrupt, "'", reader_.path(name),
              "' holds no list of data loaders");
      const auto positions = loaders->value().toListRef();
      const size_t expected = count_of(entries, StateKind::kDataloader);
      require(positions.size() == expected || (options_.allow_missing && positions.size() < expected),
              Status::kInvalidState, "'", folder_, "' holds ", positions.size(), " ", plural_of(StateKind::kDataloader),
              " and ", expected, " are prepared; prepare the same objects as when it was saved");
      size_t next = 0;
      for (StateEntry& entry : entries) {
        if (entry.kind == StateKind::kRankState) read_member(saved, entry, rank);
        if (entry.kind == StateKind::kDataloader && next < positions.size()) add(entry, positions[next++]);
      }
    });
  }

  const std::string& folder_;
  const LoadOptions& options_;
  const Ranks& ranks_;
  FolderReader reader_;
};

}  // namespace

LoadedState load_training_state(const std::string& folder, const TrainingState& like, const LoadOptions& options,
                                const Ranks& ranks) {
  run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.writer() == 0) recover_folder(folder);
    return {};
  });
  LoadedState loaded;
  const std::vector<std::string> manifests = run_on_all_ranks(ranks, [&] {
    const PinnedFolder pinned(folder);
    try {
      StateReader reader(folder, options, ranks);
      loaded = reader.read(like);
      pinned.check();
      return reader.manifest();
    } catch (const Error&) {
      pinned.check();
      throw;
    }
  });
  run_on_all_ranks(ranks, [&]() -> std::string {
    for (const std::string& manifest : manifests)
      if (manifest != manifests.front()) fail_replaced(folder);
    return {};
  });
  return loaded;
}

}  // namespace accel::checkpoint
