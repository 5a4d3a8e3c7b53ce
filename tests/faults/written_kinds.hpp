// SPDX-License-Identifier: Apache-2.0
// What is written while the power is cut, and what must be found afterwards.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "file_record.hpp"

namespace power_cut {

// What a reader finds: what was there before the last promise, all that was written, an answer that there is nothing,
// or something else.
enum class Found { kOld, kNew, kNothing, kLost };

struct Contents {
  Found found = Found::kLost;
  std::string message = {};  // of an error
};

struct Kind {
  std::string name;
  // What is in the folder, and on the disk.
  std::function<void(const std::string& folder)> prepare;
  // Is recorded, and gives promises.
  std::function<void(const std::string& folder)> write;
  // `promised`: the largest promise that was given.
  std::function<Contents(const std::string& folder, size_t promised)> read;
  // Writes once more. Returns what is wrong then; empty: nothing.
  std::function<std::string(const std::string& folder, size_t promised)> go_on;
  size_t last_promise = 1;      // after which there must be what is new
  bool may_be_nothing = false;  // until then
  FileSystemLimits limits = {};
  bool needs_syncs = true;  // without them, a state must be lost
};

std::vector<Kind> training_states();  // of a program in C, by one rank
std::vector<Kind> states_of_ranks();  // by two ranks, with parts of tensors and files of the program
std::vector<Kind> numbered_states();  // of a project, which removes the oldest
std::vector<Kind> models();           // accel_save_model()
std::vector<Kind> offload_folders();
std::vector<Kind> tracker_files();

}  // namespace power_cut
