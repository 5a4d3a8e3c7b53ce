// SPDX-License-Identifier: Apache-2.0
// Reads the files of a checkpoint folder, ours or Accelerate's.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/training_state.hpp"
#include "os/file_descriptor.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {

// Holds a folder open so that its inode number cannot be reused, and so notices that another program replaces it.
class PinnedFolder {
 public:
  explicit PinnedFolder(std::string path);
  void check() const;  // kIo

 private:
  std::string path_;
  FileDescriptor descriptor_;
};
[[noreturn]] void fail_replaced(const std::string& folder);

class FolderReader {
 public:
  // kNotFound if there is no checkpoint, kCorrupt for one that cannot be read.
  FolderReader(std::string folder, bool verify);

  bool is_ours() const { return is_ours_; }
  int world_size() const { return manifest_.world_size; }
  int64_t iteration() const { return manifest_.iteration; }
  std::string manifest() const { return is_ours_ ? print_manifest(manifest_) : std::string(); }
  const std::unordered_set<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return names_.count(name) > 0; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Whether DeepSpeed wrote the models, with the states of its own optimizers, schedules and loss scaling.
  bool is_of_deepspeed() const;

  // The name under which a state is stored, which may be that of a folder; empty if it is not there.
  std::string find(StateKind kind, const std::string& stem) const;
  // How many there are from number `first` on.
  size_t count(StateKind kind, size_t first = 0) const;

  // Compares these files with the manifest; reading them then throws what was found.
  void verify(const std::vector<std::string>& names);
  c10::IValue read(const std::string& name) const;
  // A state with the chunks of all ranks. NONE, with a warning, of an optimizer that DeepSpeed saved in another form.
  c10::IValue read_shared(StateKind kind, const std::string& name, const std::string& stem) const;

 private:
  struct Verified {
    std::shared_ptr<const MappedFile> file;
    std::exception_ptr error;
  };
  std::shared_ptr<const MappedFile> open(const std::string& name, bool verify) const;
  c10::IValue read_shards(const std::string& name) const;
  c10::IValue read_folder(StateKind kind, const std::string& name) const;

  std::string folder_;
  bool verify_;
  bool is_ours_ = false;
  Manifest manifest_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, Verified> verified_;
};

}  // namespace accel::checkpoint
