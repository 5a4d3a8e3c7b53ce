// SPDX-License-Identifier: Apache-2.0
// Temporary siblings of a file or folder that is being written. A writer locks its sibling, and the system releases the
// lock when the writer dies: a sibling that can be locked is a leftover.
#pragma once

#include <string>

#include "checkpoint/files/file_system.hpp"

namespace accel::checkpoint {

// A path, split for renames. Links at its end are resolved: their target is replaced.
struct Target {
  explicit Target(const std::string& path);
  std::string full() const { return parent + "/" + name; }
  std::string parent;
  std::string name;
};

// ".<name>.accel-<digits of the host and random digits>"; `aside` marks a complete folder that is renamed temporarily.
std::string temporary_sibling(const Target& target, bool aside);

// How often a writer retries if a cleaner removes its new sibling.
inline constexpr int kSiblingAttempts = 16;
// Locks a sibling that this writer has just created. False: a cleaner was faster and removes it.
bool claim(int descriptor);
// Tries to lock the sibling of another writer. False: the writer is alive, or the file system has no locks.
bool try_lock(int descriptor);

// Removes leftovers of dead writers of the target, and of writers of this host in the same folder, and restores a
// complete folder that one had renamed. Leftovers that cannot be removed now are left to the next writer.
void clean_leftovers(const Target& target, FileSystem& files);
void restore_aside(const Target& target, FileSystem& files);

}  // namespace accel::checkpoint
