// SPDX-License-Identifier: Apache-2.0
// The files in which FSDP keeps a model, or the state of an optimizer by the names of its parameters, outside of
// checkpoints. @accelerate utils.save_fsdp_model
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <string>

#include "checkpoint/training_state.hpp"

namespace accel::checkpoint {

enum class FsdpLayout {
  kOneFile,         // whole tensors
  kFolder,          // of torch.distributed.checkpoint: the chunks of the ranks
  kFileOfEachRank,  // with its rows, which only the same rank of as many can load
};

struct FsdpFile {
  FsdpLayout layout = FsdpLayout::kOneFile;
  StateKind kind = StateKind::kModel;  // or kOptimizer
  size_t index = 0;
  bool has_index_always = false;  // of files of ranks: FSDP leaves the index 0 out of those of LOCAL_STATE_DICT alone
};

// "pytorch_model_fsdp.bin", "optimizer_1", "pytorch_model_fsdp_1_rank0.bin"
std::string fsdp_name(const FsdpFile& file, int rank);

// Collective. The folder exists. The state has whole tensors for kOneFile, of which rank 0's counts, chunks for
// kFolder, and its rows for kFileOfEachRank. A file or folder replaces the former one in one step, those of different
// ranks one after the other.
void save_fsdp_state(const std::string& folder, const FsdpFile& file, const c10::IValue& state, const Ranks& ranks);

// A state that was saved, by this library or Accelerate. `folder` may be that of torch.distributed.checkpoint
// itself. kInvalidState for files of more ranks.
struct FsdpState {
  c10::IValue state;  // whole tensors, also as tensor::SavedTensor; for kFileOfEachRank rows
  std::string path;
};
FsdpState load_fsdp_state(const std::string& folder, const FsdpFile& file, const Ranks& ranks);

}  // namespace accel::checkpoint
