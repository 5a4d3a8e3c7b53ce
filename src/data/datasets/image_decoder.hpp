// SPDX-License-Identifier: Apache-2.0
// Pictures as tensors, by libjpeg-turbo and libpng.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace accel::data {

// Whether this build has the decoders.
bool can_decode_images();

// JPEG or PNG, whichever the bytes are, as uint8 [channels, height, width]: red, green, blue, or brightness alone
// (ITU-R 601, as Pillow has it). Transparency is lost. kCorrupt for files that are cut short or damaged also where a
// decoder could guess the rest; `path` is for the message.
at::Tensor decode_image(std::string_view file, int64_t channels, const std::string& path);

}  // namespace accel::data
