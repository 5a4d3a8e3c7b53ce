// The state of a training run of several ranks, in one folder:
//
//   model.safetensors, model_1...          rank 0     random_states_<rank>.safetensors   every rank
//   optimizer.safetensors, optimizer_1...  rank 0     dataloader_<rank>.json             every rank
//   scheduler.json, scheduler_1...         rank 0     custom_<name>.json                 rank 0
//   state.json                             the list of the others: there is no training state without it
//
// Values that may lack tensors are .json files without them and .safetensors files with them.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_system.hpp"
#include "checkpoint/safetensors.hpp"

namespace accel::checkpoint {

// One rank's view: what rank 0 writes and all read, then what is the rank's own.
struct TrainingState {
  std::vector<NamedTensors> models;
  std::vector<c10::IValue> optimizers;
  std::vector<c10::IValue> schedulers;
  std::vector<std::pair<std::string, c10::IValue>> custom;  // by name
  std::vector<c10::IValue> dataloaders;
  c10::IValue random_states;                      // generators, and whatever else a rank needs to go on
  std::vector<c10::IValue> random_states_of_all;  // only when loaded by another number of ranks: of those that saved
};

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
// the state as it is now (its values are not looked at). Either all ranks get their state or all throw, and nothing has
// changed. With another number of ranks the loaders are those of rank 0, and a rank that did not save has the random
// states of one that did.
TrainingState load_training_state(const std::string& folder, const TrainingState& like, const Ranks& ranks);

}  // namespace accel::checkpoint
