// SPDX-License-Identifier: Apache-2.0
// Manifest of a checkpoint: accel_manifest.json, which is written last and lists all other files with their sizes and
// hashes. Reading it needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accel::checkpoint {

constexpr const char* kManifestName = "accel_manifest.json";

struct FileRecord {
  std::string name;  // relative to the folder
  uint64_t size = 0;
  uint64_t hash = 0;  // see files/file_hash.hpp
};

struct Manifest {
  std::string library;  // versions of the saving process
  std::string libtorch;
  int world_size = 1;
  std::string mesh;       // the layout of the ranks, as accel_mesh_describe() prints it; empty: all are replicas
  int64_t iteration = 0;  // of automatic naming: that of this checkpoint
  size_t hash_block = 0;  // bytes that are hashed as one; 0: whole files, as in version 2
  std::vector<FileRecord> files;

  const FileRecord* find(std::string_view name) const;  // null if it is not listed
};

// 16 hexadecimal digits.
std::string print_hash(uint64_t hash);
uint64_t parse_hash(const std::string& digits, const std::string& source);

// Serialisation of the ranks' file lists, and of the document, which has a hash of its own.
std::string print_file_records(const std::vector<FileRecord>& files);
std::vector<FileRecord> parse_file_records(std::string_view text, const std::string& source);
std::string print_manifest(const Manifest& manifest);
// Errors are kCorrupt and name `source`.
Manifest parse_manifest(std::string_view text, const std::string& source);

bool has_manifest(const std::string& folder);
// kNotFound if the folder or its manifest does not exist.
Manifest load_manifest(const std::string& folder);

}  // namespace accel::checkpoint
