// SPDX-License-Identifier: Apache-2.0
// Any bytes as a picture: pixels, or an error that names the file.
#include <ATen/core/Tensor.h>

#include "base/error.hpp"
#include "bytes_file.hpp"
#include "data/datasets/image_decoder.hpp"
#include "fuzz_target.hpp"

namespace images_fuzz {

using namespace accel;

FUZZ_TARGET(images) {
  for (const int64_t channels : {1, 3}) {
    try {
      const at::Tensor image = data::decode_image({reinterpret_cast<const char*>(data), size}, channels, "input");
      check(image.dim() == 3 && image.size(0) == channels && image.numel() > 0 && image.scalar_type() == at::kByte);
    } catch (const Error& error) {
      check(error.status() == Status::kCorrupt || error.status() == Status::kUnsupported);
      check(error.message().find("'input'") != std::string::npos);
    }
  }
  return 0;
}

}  // namespace images_fuzz
