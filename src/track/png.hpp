// SPDX-License-Identifier: Apache-2.0
// Pictures as PNG files.
#pragma once

#include <cstdint>
#include <string>

namespace accel::track {

// `pixels` [height, width, channels]: 1, 3 or 4 channels (brightness; red, green, blue, opacity).
std::string encode_png(const uint8_t* pixels, int64_t height, int64_t width, int64_t channels);

}  // namespace accel::track
