// The iterators of std::filesystem end the process when memory runs out in them.
#pragma once

#include <string>
#include <vector>

namespace accel {

// The names in a folder, without "." and "..". kIo when it cannot be read.
std::vector<std::string> list_folder(const std::string& path);

}  // namespace accel
