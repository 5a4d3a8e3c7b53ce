// SPDX-License-Identifier: Apache-2.0
// Which files a dataset is made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace accel::data {

// A file, or all regular files below a folder in the order of their paths; with a suffix only those that end so. What
// cannot be listed is an error. `kind` says in errors what is wanted: "text".
std::vector<std::string> find_files(const std::string& path, const std::optional<std::string>& suffix,
                                    const char* kind);

}  // namespace accel::data
