// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checkpoint/files/file_system.hpp"

namespace accel::checkpoint {

// The folder that a path is in; "." for a plain name.
std::string parent_folder(const std::string& path);

// Creates a folder with its parents, and syncs the names of those that are new. Nothing happens if it exists.
void make_folders(const std::string& path, FileSystem& files = system_files());

}  // namespace accel::checkpoint
