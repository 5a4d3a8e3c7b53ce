// SPDX-License-Identifier: Apache-2.0
// Writes to files, and to descriptors that the program shares with others: pipes, terminals, files that are appended
// to.
#pragma once

#include <cstddef>
#include <string_view>

namespace accel {

// Returns how much was written: less than all of it on an error, which is in errno. A reader that is gone is EPIPE and
// sends the program no SIGPIPE; a full pipe that does not block is waited for.
size_t write_whole(int descriptor, std::string_view bytes);

}  // namespace accel
