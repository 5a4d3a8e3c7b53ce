// SPDX-License-Identifier: Apache-2.0
#include "track/png.hpp"

#include <gtest/gtest.h>
#include <libdeflate.h>

#include <vector>

namespace accel::track {
namespace {

uint32_t number_at(const std::string& bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = at; i < at + 4; i++) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

// What a decoder does with such a file, step by step.
std::vector<uint8_t> decoded(const std::string& file, size_t height, size_t width, size_t channels) {
  EXPECT_EQ(number_at(file, 16), width);
  EXPECT_EQ(number_at(file, 20), height);
  const size_t size = number_at(file, 33);
  EXPECT_EQ(file.substr(37, 4), "IDAT");
  EXPECT_EQ(number_at(file, 41 + size), libdeflate_crc32(0, file.data() + 37, size + 4));
  const size_t row = width * channels;
  std::vector<uint8_t> rows(height * (row + 1));
  libdeflate_decompressor* const decompressor = libdeflate_alloc_decompressor();
  EXPECT_EQ(libdeflate_zlib_decompress(decompressor, file.data() + 41, size, rows.data(), rows.size(), nullptr),
            LIBDEFLATE_SUCCESS);
  libdeflate_free_decompressor(decompressor);
  std::vector<uint8_t> pixels;
  for (size_t y = 0; y < height; y++) {
    EXPECT_EQ(rows[y * (row + 1)], 1);  // each byte is the difference to the pixel before
    for (size_t x = 0; x < row; x++) {
      const uint8_t before = x < channels ? 0 : pixels[y * row + x - channels];
      pixels.push_back(static_cast<uint8_t>(rows[y * (row + 1) + 1 + x] + before));
    }
  }
  return pixels;
}

TEST(Png, PixelsComeBack) {
  for (const size_t channels : {size_t{1}, size_t{3}, size_t{4}}) {
    std::vector<uint8_t> pixels(5 * 7 * channels);
    for (size_t i = 0; i < pixels.size(); i++) pixels[i] = static_cast<uint8_t>(i * 37);
    const std::string file = encode_png(pixels.data(), 5, 7, static_cast<int64_t>(channels));
    EXPECT_EQ(file.substr(0, 8), std::string("\x89PNG\r\n\x1a\n", 8));
    EXPECT_EQ(file[25], channels == 1 ? 0 : channels == 3 ? 2 : 6);
    EXPECT_EQ(decoded(file, 5, 7, channels), pixels);
    EXPECT_EQ(file.substr(file.size() - 8, 4), "IEND");
  }
}

}  // namespace
}  // namespace accel::track
