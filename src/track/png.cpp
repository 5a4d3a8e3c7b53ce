// SPDX-License-Identifier: Apache-2.0
#include "track/png.hpp"

#include <libdeflate.h>

#include <memory>
#include <string_view>

#include "base/error.hpp"

namespace accel::track {
namespace {

constexpr int kLevel = 6;
constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);

void append_big_endian(std::string& out, uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((number >> shift) & 0xff);
}

void append_chunk(std::string& out, std::string_view type, std::string_view content) {
  append_big_endian(out, static_cast<uint32_t>(content.size()));
  const size_t begin = out.size();
  out.append(type);
  out.append(content);
  append_big_endian(out, libdeflate_crc32(0, out.data() + begin, out.size() - begin));
}

std::string compressed(const std::string& bytes) {
  const std::unique_ptr<libdeflate_compressor, void (*)(libdeflate_compressor*)> compressor(
      libdeflate_alloc_compressor(kLevel), libdeflate_free_compressor);
  require(compressor != nullptr, Status::kOutOfMemory, "no memory to compress an image");
  std::string result(libdeflate_zlib_compress_bound(compressor.get(), bytes.size()), '\0');
  result.resize(libdeflate_zlib_compress(compressor.get(), bytes.data(), bytes.size(), result.data(), result.size()));
  return result;
}

}  // namespace

std::string encode_png(const uint8_t* pixels, int64_t height, int64_t width, int64_t channels) {
  const auto row_bytes = static_cast<size_t>(width * channels);
  std::string rows;
  rows.reserve(static_cast<size_t>(height) * (row_bytes + 1));
  for (int64_t row = 0; row < height; row++) {
    // Each byte as its difference to the pixel before, which compresses better than the bytes themselves.
    const uint8_t* const line = pixels + static_cast<size_t>(row) * row_bytes;
    rows += '\x01';
    for (size_t i = 0; i < row_bytes; i++) {
      const auto before = i < static_cast<size_t>(channels) ? 0 : line[i - static_cast<size_t>(channels)];
      rows += static_cast<char>(line[i] - before);
    }
  }
  std::string header;
  append_big_endian(header, static_cast<uint32_t>(width));
  append_big_endian(header, static_cast<uint32_t>(height));
  const int color_type = channels == 1 ? 0 : channels == 3 ? 2 : 6;
  header += '\x08';  // bits
  header += static_cast<char>(color_type);
  header.append(3, '\0');  // compression, filter, interlace: the only, or the plain, ones
  std::string file(kSignature);
  append_chunk(file, "IHDR", header);
  append_chunk(file, "IDAT", compressed(rows));
  append_chunk(file, "IEND", "");
  return file;
}

}  // namespace accel::track
