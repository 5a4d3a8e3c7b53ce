// SPDX-License-Identifier: Apache-2.0
// Sizes in bytes as people write them.
#pragma once

#include <cstdint>
#include <string_view>

namespace accel {

// "10GB", "1.5 MiB": bytes. GiB, MiB and KiB are powers of 1024; GB, MB and KB of 1000, and of bits if the last letter
// is a small b. kInvalidArgument for anything else.
// @accelerate convert_file_size_to_int
int64_t parse_byte_size(std::string_view text);

}  // namespace accel
