// SPDX-License-Identifier: Apache-2.0
// Records what a program does to the files below a folder. The program that links recorded_calls.cpp stands before the
// C library for itself and for all libraries that it loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "file_tree.hpp"

namespace power_cut {

struct Name {
  FileId folder;
  std::string name;
  std::optional<FileId> file;  // nothing: the name is gone
};

struct Operation {
  enum class Kind : uint8_t { kCreate, kNames, kWrite, kResize, kSync, kPromise };
  explicit Operation(Kind kind, FileId file = 0) : kind(kind), file(file) {}
  std::string text() const;

  Kind kind;
  FileId file;
  bool is_folder = false;   // that is created
  std::vector<Name> names;  // that change at once
  size_t offset = 0;
  std::string bytes;
  size_t size = 0;   // of a file; the number of a promise
  int rank = 0;      // that did it
  size_t epoch = 0;  // how often the rank had waited for all others
};

// Operations in an order in which they have happened. Of two ranks in one epoch neither waits for the other, so that
// their operations might also have happened in another order.
struct Recording {
  Tree before;
  std::vector<Operation> operations;
  bool has_names_at_once = false;  // names are on the disk without a sync of their folder
  Tree after() const;              // without a power cut
};

// From now on operations below the folder are recorded. What is there is on the disk.
void begin_recording(const std::string& folder);
Recording end_recording();

// The calling thread belongs to this rank; without it to rank 0.
void set_rank(int rank);
// The rank of the calling thread has heard from all ranks. `rank_has_waited` follows each exchange.
void rank_has_waited();
// The program may rely on what it did before: promise `number`, counted from 1.
void promise(size_t number);

// What the file system cannot do.
struct FileSystemLimits {
  bool syncs_folders = true;  // else fsync() of a folder is EINVAL
  bool has_links = true;      // else link() is EPERM
};
void set_limits(const FileSystemLimits& limits);

}  // namespace power_cut
