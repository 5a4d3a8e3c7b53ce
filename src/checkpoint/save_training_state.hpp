// SPDX-License-Identifier: Apache-2.0
// Saving of a training state by several ranks, in parallel, as a folder that is complete or not there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/files/atomic_folder.hpp"
#include "checkpoint/files/file_system.hpp"
#include "checkpoint/save_options.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/training_state.hpp"

namespace accel::checkpoint {

// Returns the state of this rank, and may add files to the folder that it is given.
using CollectState = std::function<TrainingState(const std::string& temporary)>;

// One save, in parts so that the last one can run on another thread: the constructor, collect() and write() are
// collective, and may use different channels between the ranks.
class TrainingStateWriter {
 public:
  // Checks that the folder is free, or an older checkpoint, which stays until write() has ended. Its parent must exist.
  TrainingStateWriter(std::string folder, SaveOptions options, const Ranks& ranks, FileSystem& files = system_files());

  // The folder that will have the name. Files that are added to it before write() belong to the checkpoint.
  const std::string& temporary() const { return temporary_; }

  // Returns the state of this rank, and makes the plan of the save. If `collect` throws on one rank, all ranks throw.
  TrainingState collect(const CollectState& collect, const Ranks& ranks);

  // Drops what other ranks write from a state that was collected, so that it need not be copied.
  void drop_others(TrainingState& state) const;

  // About how many bytes this rank will write of what was collected.
  uint64_t bytes_to_write() const { return plan_.bytes; }

  // Writes this rank's files of the state that was collected, or of a copy, then the manifest, and gives the folder its
  // name. On failure nothing changes, and every rank throws the error of the first rank that failed.
  void write(const TrainingState& state, const Ranks& ranks);

 private:
  std::string folder_;
  SaveOptions options_;
  FileSystem& files_;
  std::unique_ptr<AtomicFolder> target_;  // of the first rank
  std::string temporary_;
  SavePlan plan_;
};

// All parts.
void save_training_state(const std::string& folder, const CollectState& collect, const SaveOptions& options,
                         const Ranks& ranks, FileSystem& files = system_files());

}  // namespace accel::checkpoint
