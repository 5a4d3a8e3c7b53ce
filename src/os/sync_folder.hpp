// SPDX-License-Identifier: Apache-2.0
// Makes the names in a folder durable. A power cut may take the name of a file that is synced while its folder is not.
#pragma once

#include <string>

namespace accel {

// kIo. Some network file systems cannot sync a folder (EINVAL); nothing is done there.
void sync_folder(const std::string& path);

}  // namespace accel
