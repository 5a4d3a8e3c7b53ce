// SPDX-License-Identifier: Apache-2.0
// Opening the files that a manifest lists.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/manifest.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {

// Opens a file of the manifest, after comparing its size, and its contents if `verify`, with its record. kCorrupt names
// it.
std::shared_ptr<const MappedFile> open_listed(const std::string& folder, const Manifest& manifest,
                                              const FileRecord& record, bool verify);

}  // namespace accel::checkpoint
