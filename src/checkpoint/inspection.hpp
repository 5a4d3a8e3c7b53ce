// SPDX-License-Identifier: Apache-2.0
// Looks into checkpoints without loading them: what the commands verify, list, show and diff report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/formats/safetensors_header.hpp"

namespace accel::checkpoint {

struct Verification {
  size_t files = 0;
  uint64_t bytes = 0;
  std::vector<std::string> problems;  // each names a file; empty if the checkpoint is whole
};
// Compares each file with the manifest. kNotFound without a manifest, kCorrupt if that is damaged.
Verification verify_checkpoint(const std::string& folder);

struct CheckpointSummary {
  std::string path;
  std::optional<int64_t> iteration;
  std::optional<int> world_size;
  size_t files = 0;
  uint64_t bytes = 0;
  bool complete = false;  // with a readable manifest, or with Accelerate's files
};
// Lists the checkpoints in the folder, or in its sub-folder "checkpoints", by their numbers, then by their names.
std::vector<CheckpointSummary> list_checkpoints(const std::string& folder);

struct FileContents {
  std::string name;
  uint64_t bytes = 0;
  std::vector<TensorEntry> tensors;  // of safetensors and compressed tensors
};
// The files of a checkpoint but its manifest, by their names.
std::vector<FileContents> files_of_checkpoint(const std::string& folder);

struct Difference {
  std::vector<std::string> only_in_first, only_in_second, different, equal;
};
// By the bytes of files, and of the tensors in safetensors ("model.safetensors: layer.weight").
Difference compare_checkpoints(const std::string& first, const std::string& second);

}  // namespace accel::checkpoint
