// SPDX-License-Identifier: Apache-2.0
// The plan of a save: the files that this rank writes. It is made once, of what all ranks that share the folder have.
// The list of the first of them counts: states that it lacks or leaves out are not saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/training_state.hpp"

namespace accel::checkpoint {

struct SaveOptions;

// One state of this rank and the files that it writes of it.
struct WriteItem {
  size_t entry;                     // of the state
  std::string name;                 // the file of all but its chunks; empty: another rank writes that
  std::string chunks;               // the file of this rank's chunks; empty: the state has none
  std::vector<std::string> shards;  // the files of a model's frozen tensors and of the others; `name` is their index
};

struct SavePlan {
  std::vector<WriteItem> items;
  std::string random_states, rank_states;  // files of the states that every rank writes for itself
  uint64_t bytes = 0;                      // of all files, about
};

// Describes the states that this rank has and may write, as text for the others.
std::string offer_files(const TrainingState& state, const SaveOptions& options);

// `offers` are those of the ranks of the folder, in order. A file that any rank may write goes to the rank with the
// least to write so far. kInvalidState if a rank has an object that the first one lacks, or no chunks of a state that
// is in chunks.
SavePlan plan_save(const TrainingState& state, const std::vector<std::string>& offers, const Ranks& ranks);

}  // namespace accel::checkpoint
