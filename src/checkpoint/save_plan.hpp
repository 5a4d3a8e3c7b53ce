// Who writes what of a checkpoint: one plan for all ranks that share the folder, made of what each of them has. The
// list of the first of them counts: what it lacks or leaves out is not saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/training_state.hpp"

namespace accel::checkpoint {

struct SaveOptions;

// A file that one rank writes for all; if its state is in chunks, every rank writes a file of its own chunks beside it.
struct PlannedFile {
  std::optional<size_t> entry;  // of this rank's state; nothing: it lacks it, or leaves it out
  std::string stem;
  std::string name;
  int writer;  // its number among the ranks of the folder
};

// In bytes.
uint64_t size_of(const c10::IValue& state);

// Describes the files that this rank has and may write, as text for the others.
std::string offer_files(const TrainingState& state, const SaveOptions& options);

// `offers` are those of the ranks of the folder, in order. A file that any rank may write goes to the rank with the
// least to write so far. kInvalidState if a rank has an object that the first one lacks, or no chunks of a state that
// is in chunks.
std::vector<PlannedFile> plan_files(const std::vector<std::string>& offers, const Ranks& ranks);

}  // namespace accel::checkpoint
