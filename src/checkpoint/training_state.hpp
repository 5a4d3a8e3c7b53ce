// Training state: the checkpoint of a training run of several ranks, in one folder:
//
//   model.safetensors, model_1...          rank 0     random_states_<rank>.safetensors   every rank, by name
//   optimizer.safetensors, optimizer_1...  rank 0     dataloader_<rank>.json             every rank, a list
//   scheduler.json, scheduler_1...         rank 0     custom_<name>.json                 rank 0
//   state.json                             the list of the others: there is no training state without it
//
// Values are .json files if they have no tensors, otherwise .safetensors files.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/files/file_system.hpp"
#include "checkpoint/safetensors.hpp"

namespace accel::checkpoint {

// The first four are replicated: rank 0 writes them. The others are per rank.
enum class StateKind { kModel, kOptimizer, kScheduler, kCustom, kDataloader, kRankState };
bool is_per_rank(StateKind kind);

// The state of one object.
struct StateEntry {
  StateKind kind;
  std::string name;  // of kCustom and kRankState; others are identified by their order
  c10::IValue state;
  // Of per-rank states, if another number of ranks loads them: the states of all saving ranks, instead of `state`.
  std::vector<c10::IValue> of_ranks;
  bool may_be_missing = false;  // of kRankState: its state is None if the checkpoint has none
};
using TrainingState = std::vector<StateEntry>;

// The state of a model is a map of its tensors.
c10::IValue model_state(const NamedTensors& tensors);
NamedTensors model_tensors(const c10::IValue& state);

// Communication of the ranks: one all_gather of texts, in rank order, which serves as barrier, broadcast and vote. It
// throws if a rank is lost.
struct Ranks {
  int rank = 0;
  int size = 1;
  std::function<std::vector<std::string>(const std::string&)> all_gather = [](const std::string& text) {
    return std::vector<std::string>{text};
  };
};

// Letters, digits, '_', '-' and '.' (not first): the name is part of a file name.
void check_custom_name(const std::string& name);

// Collective. Replaces the folder, whose parent must exist and be shared by the ranks, by a complete one; on failure
// nothing changes, and every rank throws the error of the first rank that failed. A folder that is not a training state
// is not replaced.
void save_training_state(const std::string& folder, const TrainingState& state, const Ranks& ranks,
                         FileSystem& files = system_files());
// The same for a state that is collected by a function. If it throws on one rank, all ranks fail.
void save_training_state(const std::string& folder, const std::function<TrainingState()>& collect, const Ranks& ranks,
                         FileSystem& files = system_files());

// Collective. Reads and checks the files that this rank needs: sizes, checksums, and whether models, counts and names
// match `like`, the current entries, of whose states only the names and shapes in models are used. Either all ranks
// return these entries with the saved states, or all throw, and nothing has changed.
TrainingState load_training_state(const std::string& folder, const TrainingState& like, const Ranks& ranks);

}  // namespace accel::checkpoint
