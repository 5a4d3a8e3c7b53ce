// Manifest of a training state: state.json, which is written last and lists all other files with sizes and hashes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.hpp"

namespace accel::checkpoint {

constexpr const char* kManifestName = "state.json";

struct FileRecord {
  std::string name;
  uint64_t size;
  uint64_t xxh3;
};

struct Manifest {
  int world_size = 1;
  std::vector<FileRecord> files;

  const FileRecord* find(std::string_view name) const;  // null if it is not listed
};

// Serialisation of the ranks' file lists, and of the document, which has a hash of its own.
std::string print_file_records(const std::vector<FileRecord>& files);
std::vector<FileRecord> parse_file_records(std::string_view text, const std::string& source);
std::string print_manifest(const Manifest& manifest);
Manifest parse_manifest(std::string_view text, const std::string& source);

// kNotFound if the folder or its state.json does not exist.
Manifest load_manifest(const std::string& folder);

// Opens the file, after comparing it with its record.
std::shared_ptr<const MappedFile> open_verified(const std::string& folder, const FileRecord& record);

}  // namespace accel::checkpoint
