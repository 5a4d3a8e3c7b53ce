// SPDX-License-Identifier: Apache-2.0
// The state of the recording, which the calls of the program change.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "file_record.hpp"

namespace power_cut {

struct Recorder {
  std::mutex mutex;  // held while a call is made and noted, so that the order of the record is that of the calls
  bool is_on = false;
  Recording recording;
  std::map<Inode, FileId> ids;
  std::map<int, size_t> epochs;  // of the ranks
  FileId next = 1;

  // Adds an operation of the calling thread's rank.
  void add(Operation operation);
};

Recorder& recorder();
// Calls of the recorder itself are not recorded.
extern thread_local bool is_inside;
extern std::atomic<bool> syncs_folders, has_links;

}  // namespace power_cut
