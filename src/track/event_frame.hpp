// SPDX-License-Identifier: Apache-2.0
// The frames of TensorFlow's record files: length, its checksum, content, its checksum.
#pragma once

#include <string>
#include <string_view>

namespace accel::track {

// CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);
void append_frame(std::string& out, std::string_view content);

}  // namespace accel::track
