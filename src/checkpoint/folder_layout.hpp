// SPDX-License-Identifier: Apache-2.0
// Layout of a checkpoint folder: the files of Accelerate's save_state(), which it can load, and two kinds of our
// own.
//
//   model.safetensors, model_1...      or pytorch_model.bin; compressed: model.ztensors
//   optimizer.bin, optimizer_1...      compressed: optimizer.ztensors
//   scheduler.bin, scheduler_1...
//   scaler.pt
//   custom_checkpoint_0.pkl, ...       numbered objects of the application; with names: custom_<name>.bin
//   random_states_<rank>.pkl           of every rank: a map of its generators
//   accel_rank_<rank>.bin              of every rank: what Accelerate does not save
//   accel_manifest.json                written last: the list of the others
//
// Accelerate has other files of models and optimizers that are sharded, which are read:
//
//   pytorch_model_fsdp.bin, pytorch_model_fsdp_1.bin ...  FULL_STATE_DICT; optimizers are by names of parameters
//   pytorch_model_fsdp_0/, optimizer_0/, ...              SHARDED_STATE_DICT: folders of torch.distributed.checkpoint
//   pytorch_model/, pytorch_model_1/ ...                  folders of DeepSpeed, which hold the optimizer too
//
// Tensors of which each rank has a chunk are in <stem>_rank_<rank>.safetensors, for example model_rank_00001.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/training_state.hpp"

namespace accel::checkpoint {

inline constexpr size_t kNumStateKinds = static_cast<size_t>(StateKind::kRankState) + 1;

// "models", for messages.
const char* plural_of(StateKind kind);

// The stem of the n-th state of a kind: "model", "model_1", ...
std::string numbered_stem(StateKind kind, size_t index);
// The stems of a state's entries, in order.
class Stems {
 public:
  std::string next(const StateEntry& entry);

 private:
  std::array<size_t, kNumStateKinds> counts_ = {};
};

// The name of the file that is written for a stem.
std::string file_name(StateKind kind, const std::string& stem, bool safe_serialization, bool compressed);
// All names that may stand for it, the preferred one first; some are folders.
std::vector<std::string> possible_names(StateKind kind, const std::string& stem);

// A model may be in two files: the one with tensors that do not change is shard 0.
std::string index_name(const std::string& stem);
bool is_index(std::string_view name);
std::string shard_name(const std::string& stem, size_t shard);

std::string random_states_name(int rank);
std::string rank_state_name(int rank);
std::string chunks_name(const std::string& stem, int rank);

// The key of the list of loaders' positions in the state of a rank.
inline constexpr const char* kDataloadersKey = "dataloaders";

// Whether names of a model or optimizer are those of sharded ones, which may have prefixes of modules that wrap others.
bool is_sharded_name(std::string_view name);
// Whether a file of Accelerate is a part that only its rank can read.
bool is_rank_file(std::string_view name);
// Whether a file is the state of an object of the application.
bool is_custom_file(std::string_view name);
// Whether a file of Accelerate has the position of a loader, as an object of torch or torchdata.
bool is_loader_of_torch(std::string_view name);
// Whether only this library writes such files: without a manifest, which comes last, they are of a save that did not
// end.
bool is_own_file(std::string_view name);
// Whether save_state(), ours or Accelerate's, writes files with that name.
bool is_checkpoint_file(std::string_view name);

}  // namespace accel::checkpoint
