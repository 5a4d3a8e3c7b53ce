// Saving of a training state by several ranks, in parallel, as a folder that is complete or not there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/files/atomic_folder.hpp"
#include "checkpoint/files/file_system.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/training_state.hpp"

namespace accel::checkpoint {

struct SaveOptions {
  bool safe_serialization = true;  // models as safetensors; otherwise as torch.save() writes them
  int compression_level = 0;       // of Zstd, for models and optimizers; 0: not compressed
  bool save_on_each_node = false;  // each host has a folder of its own
  bool durable = true;             // the files are on the disk before the folder has its name
  bool may_replace = true;         // an older checkpoint of that name
  // Files that are as in `previous`, a former checkpoint if there is one, are shared with it instead of written. The
  // frozen parameters of a model are in a file of their own.
  bool incremental = false;
  std::string previous;
  // For the manifest.
  std::string library;  // the version
  std::string mesh;
  int64_t iteration = 0;
};

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

  // The state of this rank, and the plan of who writes what. If `collect` throws on one rank, all ranks throw.
  TrainingState collect(const CollectState& collect, const Ranks& ranks);

  // About how many bytes this rank will write of what was collected.
  uint64_t bytes_to_write(const TrainingState& state, const Ranks& ranks) const;

  // Writes this rank's files of the state that was collected, or of a copy, then the manifest, and gives the folder its
  // name. On failure nothing changes, and every rank throws the error of the first rank that failed.
  void write(const TrainingState& state, const Ranks& ranks);

 private:
  std::string folder_;
  SaveOptions options_;
  FileSystem& files_;
  std::unique_ptr<AtomicFolder> target_;  // of the first rank
  std::string temporary_;
  std::vector<PlannedFile> plan_;
};

// All parts.
void save_training_state(const std::string& folder, const CollectState& collect, const SaveOptions& options,
                         const Ranks& ranks, FileSystem& files = system_files());

}  // namespace accel::checkpoint
