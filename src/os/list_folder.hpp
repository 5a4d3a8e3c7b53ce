// SPDX-License-Identifier: Apache-2.0
// Lists the contents of a folder. std::filesystem's iterators would end the process on a lack of memory.
#pragma once

#include <string>
#include <vector>

namespace accel {

bool is_folder(const std::string& path);

// The names in a folder, without "." and "..". kIo if it cannot be read.
std::vector<std::string> list_folder(const std::string& path);

}  // namespace accel
