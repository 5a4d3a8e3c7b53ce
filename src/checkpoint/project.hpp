// SPDX-License-Identifier: Apache-2.0
// Project: names the checkpoints of a program by their number, and removes the oldest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/files/file_system.hpp"
#include "config/generated/settings/checkpoint/project.hpp"

namespace accel::checkpoint {

// The number at the end of "checkpoint_12".
std::optional<int64_t> number_of_checkpoint(const std::string& path);

class Project {
 public:
  const ProjectSettings& settings() const { return settings_; }
  void set(ProjectSettings settings) { settings_ = std::move(settings); }

  // The folder of the next save. kInvalidArgument without automatic naming.
  std::string next_folder() const;
  // The folder of the largest number whose files are all there. If none is complete, the one of the largest number.
  // kNotFound if there is none.
  std::string newest_folder() const;
  // Refuses to name a checkpoint as one that exists.
  void require_new(const std::string& folder) const;

  // After a save, or the start of one that continues in the background.
  void count_save() { settings_.iteration = settings_.iteration + 1; }
  void set_iteration(int64_t iteration) { settings_.iteration = iteration; }
  // The number of the next checkpoint after that one was loaded: none that exists.
  int64_t iteration_after(int64_t loaded) const;

  // Removes the oldest checkpoints beyond the limit, but never `kept`, which must be complete, nor `agreed`, the last
  // one on which all ranks agreed, if there is one. A folder that is being removed is not visible as a checkpoint.
  void remove_oldest(const std::string& kept, FileSystem& files = system_files(), const std::string& agreed = "") const;

 private:
  struct Numbered {
    int64_t number;
    std::string path;
  };
  std::string base() const;
  std::vector<Numbered> checkpoints() const;  // the oldest first

  ProjectSettings settings_;
};

}  // namespace accel::checkpoint
