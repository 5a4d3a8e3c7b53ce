// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/listed_file.hpp"

#include "base/error.hpp"
#include "checkpoint/files/file_hash.hpp"

namespace accel::checkpoint {

std::shared_ptr<const MappedFile> open_listed(const std::string& folder, const Manifest& manifest,
                                              const FileRecord& record, bool verify) {
  auto file = std::make_shared<const MappedFile>(folder + "/" + record.name);
  require(file->size() == record.size, Status::kCorrupt, "'", file->path(), "' has ", file->size(), " bytes; ",
          kManifestName, " says ", record.size);
  if (!verify) return file;
  const uint64_t hash = hash_of_file(*file, manifest.hash_block);
  require(hash == record.hash, Status::kCorrupt, "'", file->path(), "' is damaged: its hash is ", print_hash(hash),
          "; ", kManifestName, " says ", print_hash(record.hash));
  return file;
}

}  // namespace accel::checkpoint
