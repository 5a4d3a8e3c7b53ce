// Temporary siblings of a target. A writer holds a lock on its sibling, and the system drops the lock when the writer
// dies: a sibling that can be locked is a leftover.
#pragma once

#include <string>

#include "checkpoint/file_system.hpp"

namespace accel::checkpoint {

// A path split into what renames need. Links at the end are resolved: what they point to is replaced, not they.
struct Target {
  explicit Target(const std::string& path);
  std::string full() const { return parent + "/" + name; }
  std::string parent;
  std::string name;
};

// ".<name>.accel-<digits of the host and of chance>"; `aside` marks something complete that stands aside for a moment.
std::string temporary_sibling(const Target& target, bool aside);

// How often a writer tries to make a sibling that no cleaner takes away.
inline constexpr int kSiblingAttempts = 16;
// Locks a sibling that its writer has just made. False: a cleaner was quicker and removes it.
bool claim(int descriptor);
// Locks without waiting what another writer made. False: it is alive, or the file system has no locks.
bool try_lock(int descriptor);

// Removes what dead writers of the target left, also what those of this host left of other targets in the same folder,
// and puts back a complete folder that one had moved aside. What cannot be removed now is found by the next writer.
void clean_leftovers(const Target& target, FileSystem& files);
void restore_aside(const Target& target, FileSystem& files);

}  // namespace accel::checkpoint
