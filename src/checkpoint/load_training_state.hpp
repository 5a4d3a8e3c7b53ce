// SPDX-License-Identifier: Apache-2.0
// Loading of a checkpoint folder, ours or Accelerate's, on any number of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/training_state.hpp"
#include "config/generated/settings/checkpoint/load_state.hpp"

namespace accel::checkpoint {

struct LoadOptions : LoadStateSettings {
  bool save_on_each_node = false;  // as it was saved
};

struct LoadedState {
  TrainingState entries;
  std::optional<int64_t> iteration;  // of automatic naming; Accelerate does not save it
};

// Collective. Reads and checks the files that this rank needs: sizes, hashes, and whether models, counts and names
// match `like`, the current entries, of whose states only the names and shapes in models are used. Either all ranks
// return these entries with the saved states, or all throw, and nothing has changed. Entries that the checkpoint lacks,
// and may lack, have neither `is_loaded` nor `of_ranks`.
//
// A folder that is replaced meanwhile by another program is kIo, not a mixture of both.
//
// A folder without a manifest is one of Accelerate, also under FSDP or DeepSpeed: it has no states of kinds
// kDataloader and kRankState, and nothing to verify.
LoadedState load_training_state(const std::string& folder, const TrainingState& like, const LoadOptions& options,
                                const Ranks& ranks);

}  // namespace accel::checkpoint
