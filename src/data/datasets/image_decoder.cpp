// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/image_decoder.hpp"

#include "base/error.hpp"

#ifdef ACCEL_HAS_IMAGES
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <memory>
#endif

namespace accel::data {

#ifdef ACCEL_HAS_IMAGES

namespace {

constexpr int64_t kMostPixels = int64_t{1} << 28;

// uint8 [height, width, planes]
at::Tensor room_for(int64_t height, int64_t width, int64_t planes, const std::string& path) {
  require(height > 0 && width > 0 && height <= kMostPixels / width, Status::kCorrupt, "image '", path, "' is ", width,
          " x ", height, "; expected between 1 and ", kMostPixels, " pixels");
  return at::empty({height, width, planes}, at::kByte);
}

struct CloseJpeg {
  void operator()(void* decoder) const { tjDestroy(decoder); }
};

at::Tensor decode_jpeg(std::string_view file, int64_t channels, const std::string& path) {
  const std::unique_ptr<void, CloseJpeg> decoder(tjInitDecompress());
  require(decoder != nullptr, Status::kOutOfMemory, "no memory to decode image '", path, "'");
  const auto* const bytes = reinterpret_cast<const unsigned char*>(file.data());
  int width = 0, height = 0, sampling = 0, colors = 0;
  require(tjDecompressHeader3(decoder.get(), bytes, file.size(), &width, &height, &sampling, &colors) == 0,
          Status::kCorrupt, "image '", path, "' is not a valid JPEG: ", tjGetErrorStr2(decoder.get()));
  require(colors != TJCS_CMYK && colors != TJCS_YCCK, Status::kUnsupported, "image '", path,
          "' is a JPEG with CMYK colors; expected grey or RGB");
  const at::Tensor pixels = room_for(height, width, channels, path);
  // A warning is an error too: the decoder has then made up what the file lacks.
  require(tjDecompress2(decoder.get(), bytes, file.size(), pixels.mutable_data_ptr<uint8_t>(), width, 0, height,
                        channels == 1 ? TJPF_GRAY : TJPF_RGB, TJFLAG_STOPONWARNING | TJFLAG_ACCURATEDCT) == 0,
          Status::kCorrupt, "image '", path, "' is not a valid JPEG: ", tjGetErrorStr2(decoder.get()));
  return pixels;
}

struct PngImage : png_image {
  PngImage() : png_image() { version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(this); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

at::Tensor decode_png(std::string_view file, int64_t channels, const std::string& path) {
  PngImage image;
  require(png_image_begin_read_from_memory(&image, file.data(), file.size()) != 0, Status::kCorrupt, "image '", path,
          "' is not a valid PNG: ", image.message);
  // With transparency, because libpng would else want a background to mix in.
  image.format = PNG_FORMAT_RGBA;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const at::Tensor pixels = room_for(image.height, image.width, 4, path);
  require(png_image_finish_read(&image, nullptr, pixels.mutable_data_ptr<uint8_t>(), 0, nullptr) != 0, Status::kCorrupt,
          "image '", path, "' is not a valid PNG: ", image.message);
  if (channels == 3) return pixels.narrow(2, 0, 3);
  at::Tensor grey = at::empty({pixels.size(0), pixels.size(1), 1}, at::kByte);
  const auto* from = pixels.const_data_ptr<uint8_t>();
  auto* const to = grey.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < grey.numel(); ++i, from += 4)
    to[i] = static_cast<uint8_t>((299 * from[0] + 587 * from[1] + 114 * from[2] + 500) / 1000);
  return grey;
}

}  // namespace

bool can_decode_images() { return true; }

at::Tensor decode_image(std::string_view file, int64_t channels, const std::string& path) {
  require(channels == 1 || channels == 3, Status::kInvalidArgument, "channels is ", channels, "; expected 1 or 3");
  const bool is_jpeg = file.substr(0, 3) == "\xff\xd8\xff";
  require(is_jpeg || file.substr(0, 8) == "\x89PNG\r\n\x1a\n", Status::kCorrupt, "image '", path,
          "' begins neither as JPEG nor as PNG; expected one of them");
  const at::Tensor pixels = is_jpeg ? decode_jpeg(file, channels, path) : decode_png(file, channels, path);
  return pixels.permute({2, 0, 1}).contiguous();
}

#else

bool can_decode_images() { return false; }

at::Tensor decode_image(std::string_view, int64_t, const std::string& path) {
  fail(Status::kUnsupported, "image '", path,
       "' cannot be decoded: this build has no decoders; build with -Dimages=enabled, libjpeg-turbo and libpng");
}

#endif

}  // namespace accel::data
