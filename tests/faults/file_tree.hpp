// SPDX-License-Identifier: Apache-2.0
// The files below a folder, in memory: what the disk has.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace power_cut {

using FileId = uint64_t;

// A folder's names, or a file's bytes.
struct File {
  bool is_folder = false;
  std::map<std::string, FileId> names;
  std::string bytes;
};
using Tree = std::map<FileId, File>;  // 0 is the root

using Inode = std::pair<dev_t, ino_t>;

Tree read_tree(const std::string& folder);
// The same with ids that `id_of` gives; the folder's must be 0.
Tree read_tree(const std::string& folder, const std::function<FileId(const Inode&)>& id_of);
// The root may exist.
void write_tree(const Tree& tree, const std::string& folder);
// The same for trees of the same names and bytes, and for no others.
std::string text_of(const Tree& tree);

}  // namespace power_cut
