// SPDX-License-Identifier: Apache-2.0
// Records what a program does to the files below a folder, and builds the states in which a power cut may leave them.
// The program that links this stands before the C library for itself and for all libraries that it loads.
//
// A file system promises what POSIX says and no more: data is on the disk when fsync() of its file has returned, and a
// name when that of its folder has. Until then each write may be there or not, in blocks of 4096 bytes, in any order; a
// file may have its new size and zeros for its data; names may come in any order too. A rename is there as a whole or
// not at all (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014, has what file systems do).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace power_cut {

using FileId = uint64_t;

// A folder's names, or a file's bytes.
struct File {
  bool is_folder = false;
  std::map<std::string, FileId> names;
  std::string bytes;
};
using Tree = std::map<FileId, File>;  // 0 is the root

struct Name {
  FileId folder;
  std::string name;
  std::optional<FileId> file;  // nothing: the name is gone
};

struct Operation {
  enum class Kind : uint8_t { kCreate, kNames, kWrite, kResize, kSync };
  explicit Operation(Kind kind, FileId file = 0) : kind(kind), file(file) {}
  std::string text() const;

  Kind kind;
  FileId file;
  bool is_folder = false;   // that is created
  std::vector<Name> names;  // that change at once
  size_t offset = 0;
  std::string bytes;
  size_t size = 0;
};

struct Recording {
  Tree before;
  std::vector<Operation> operations;
  Tree after() const;
};

// From now on operations below the folder are recorded. What is there is on the disk.
void begin_recording(const std::string& folder);
Recording end_recording();

Tree read_tree(const std::string& folder);
// Whether both have the same names and bytes.
bool are_equal(const Tree& one, const Tree& other);
void write_tree(const Tree& tree, const std::string& folder);
// The same for equal trees.
std::string text_of(const Tree& tree);

// One thing that a power cut may do to an operation that is not on the disk yet.
enum class Fate : uint8_t { kLost, kDone, kSizeAlone, kFirstBlock, kAllButFirstBlock };

// The tree after a power cut behind `count` operations; `fates` has one for each of them.
Tree crash(const Recording& recording, size_t count, const std::vector<Fate>& fates);

// Calls `visit` with the operations that were done, and the fates: all combinations where a power cut has at most
// `most`, else so many that are drawn.
using Visit = std::function<void(size_t count, const std::vector<Fate>& fates)>;
void for_each_crash(const Recording& recording, size_t most, std::mt19937_64& random, const Visit& visit);

}  // namespace power_cut
