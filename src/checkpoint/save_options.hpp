// SPDX-License-Identifier: Apache-2.0
// The options of a save: those of the application, and what the training adds.
#pragma once

#include <cstdint>
#include <string>

#include "config/generated/settings/checkpoint/save_state.hpp"

namespace accel::checkpoint {

// An incremental save shares files that are as in `previous`, a former checkpoint if there is one, instead of writing
// them; the frozen parameters of a model are in a file of their own.
struct SaveOptions : SaveStateSettings {
  bool save_on_each_node = false;  // each host has a folder of its own
  bool may_replace = true;         // an older checkpoint of that name
  std::string previous = {};
  // For the manifest.
  std::string library = {};  // the version
  std::string mesh = {};
  int64_t iteration = 0;
};

}  // namespace accel::checkpoint
