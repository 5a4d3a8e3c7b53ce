// The state of a training run of several ranks, in one folder:
//
//   model.safetensors, model_1...          rank 0     random_states_<rank>.safetensors   every rank, by name
//   optimizer.safetensors, optimizer_1...  rank 0     dataloader_<rank>.json             every rank, a list
//   scheduler.json, scheduler_1...         rank 0     custom_<name>.json                 rank 0
//   state.json                             the list of the others: there is no training state without it
//
// Values that may lack tensors are .json files without them and .safetensors files with them.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/file_system.hpp"
#include "checkpoint/safetensors.hpp"

namespace accel::checkpoint {

// The first four are the same on all ranks: rank 0 writes them. The others are each rank's own.
enum class StateKind { kModel, kOptimizer, kScheduler, kCustom, kDataloader, kRankState };
bool is_per_rank(StateKind kind);

// One object's part.
struct StateEntry {
  StateKind kind;
  std::string name;  // of kCustom and kRankState; the others go by their order
  c10::IValue state;
  // Of what is each rank's own, when another number of ranks loads it: those of the ranks that saved, in place of
  // state.
  std::vector<c10::IValue> of_ranks;
};
using TrainingState = std::vector<StateEntry>;

// A model's part is a map of its tensors.
c10::IValue model_state(const NamedTensors& tensors);
NamedTensors model_tensors(const c10::IValue& state);

// How the ranks talk. One function is enough: every rank's text goes to all ranks, in rank order, which is a barrier, a
// broadcast and a vote. It throws when a rank is lost.
struct Ranks {
  int rank = 0;
  int size = 1;
  std::function<std::vector<std::string>(const std::string&)> all_gather = [](const std::string& text) {
    return std::vector<std::string>{text};
  };
};

// Letters, digits, '_', '-' and '.', not first: the name is part of a file name.
void check_custom_name(const std::string& name);

// Collective. The folder, whose parent must exist and be shared by the ranks, is replaced by a complete one, or nothing
// changes and every rank throws the error of the first rank that failed. A folder that holds anything but a training
// state is not replaced.
void save_training_state(const std::string& folder, const TrainingState& state, const Ranks& ranks,
                         FileSystem& files = system_files());
// The same for a state that is yet to be collected. What `collect` throws on one rank is the failure of all.
void save_training_state(const std::string& folder, const std::function<TrainingState()>& collect, const Ranks& ranks,
                         FileSystem& files = system_files());

// Collective. Reads and checks what this rank needs: sizes, checksums, and whether models, counts and names fit `like`,
// the entries as they are now, whose states are not looked at but for the names and shapes in models. Either all ranks
// get the same entries with what was saved, or all throw, and nothing has changed.
TrainingState load_training_state(const std::string& folder, const TrainingState& like, const Ranks& ranks);

}  // namespace accel::checkpoint
