// SPDX-License-Identifier: Apache-2.0
// The secret that the launchers of a job share. It is never sent.
#pragma once

#include <string>

namespace accel::launch {

// The content of the file without white space around it. The file must be readable by its owner alone, and have at
// least 16 characters.
std::string read_secret_file(const std::string& path);

}  // namespace accel::launch
