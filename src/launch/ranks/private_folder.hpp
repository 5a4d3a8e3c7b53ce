// SPDX-License-Identifier: Apache-2.0
// A folder that only the user may look into, for what ranks write.
#pragma once

#include <string>

namespace accel::launch {

// Makes it, and those above it, where they are missing. Status::kIo if it cannot be, or is not a folder.
void make_private_folder(const std::string& path);

}  // namespace accel::launch
