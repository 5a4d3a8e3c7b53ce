// SPDX-License-Identifier: Apache-2.0
// GGUF files: headers and blocks beside what the package gguf reads from them (make_gguf_fixtures.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/formats/gguf/gguf_blocks.hpp"
#include "checkpoint/formats/gguf/gguf_header.hpp"
#include "expect_error.hpp"
#include "nn_fixture.hpp"

namespace accel::checkpoint {
namespace {

using tests::bytes_of;
using tests::expect_error;

std::vector<float> floats_of(const Json& hex) {
  const std::string bytes = bytes_of(hex);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

// A row of whole blocks through the codes, scales and offsets of the kernels.
std::vector<float> values_of(GgufType type, const std::string& blocks) {
  const int64_t count = static_cast<int64_t>(blocks.size()) / block_of(type).bytes;
  const int64_t columns = count * block_of(type).numbers;
  const kernels::WeightFormat format = weight_format(type);
  std::vector<uint8_t> codes(kernels::code_bytes(format, 1, columns));
  std::vector<float> scales(kernels::groups_of_row(format, columns)), offsets(scales.size());
  split_blocks(type, reinterpret_cast<const uint8_t*>(blocks.data()), count, codes.data(), scales.data(),
               format.has_offsets ? offsets.data() : nullptr);
  std::vector<float> values(columns);
  for (int64_t i = 0; i < columns; i++) {
    int code = static_cast<int8_t>(codes[i % static_cast<int64_t>(codes.size())]);
    if (kernels::code_bits(format.code) == 4)
      code = (i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15) - (format.has_offsets ? 0 : 8);
    values[i] = scales[i / format.group] * static_cast<float>(code) + offsets[i / format.group];
  }
  return values;
}

void expect_near(const std::vector<float>& values, const std::vector<float>& expected, const std::string& name) {
  ASSERT_EQ(values.size(), expected.size()) << name;
  for (size_t i = 0; i < values.size(); i++)
    EXPECT_NEAR(values[i], expected[i], 2e-6 * (1 + std::abs(expected[i]))) << name << " " << i;
}

TEST(Gguf, BlocksHaveTheNumbersOfTheReference) {
  const Json fixture = tests::read_fixture("gguf.json");
  size_t types = 0;
  for (const Json& recorded : *json_member(fixture, "blocks")->items()) {
    const auto type = static_cast<GgufType>(json_integer(recorded, "number", 0));
    EXPECT_EQ(json_text(recorded, "type", ""), block_of(type).name);
    EXPECT_TRUE(is_quantized(type));
    expect_near(values_of(type, bytes_of(*json_member(recorded, "blocks"))),
                floats_of(*json_member(recorded, "values")), block_of(type).name);
    types++;
  }
  EXPECT_EQ(types, 8U);
  EXPECT_FALSE(is_quantized(GgufType::kBFloat16));
  expect_error(Status::kInvalidArgument, "F16 is not quantized", [] { weight_format(GgufType::kFloat16); });
}

TEST(Gguf, HeadersHaveTheMetadataAndTheTensorsOfTheWriter) {
  const Json fixture = tests::read_fixture("gguf.json");
  const std::string file = bytes_of(*json_member(fixture, "file"));
  const GgufHeader header = parse_gguf_header(file, "model.gguf");
  EXPECT_EQ(json_text(header.metadata, "general.architecture", ""), "llama");
  EXPECT_EQ(json_integer(header.metadata, "one.int32", 0), -(int64_t{1} << 31));
  EXPECT_EQ(json_integer(header.metadata, "one.uint32", 0), int64_t{1} << 31);
  EXPECT_EQ(*json_member(header.metadata, "one.uint64")->digits(), "18446744073709551615");
  EXPECT_EQ(json_number(header.metadata, "one.float64", 0), 0.1);
  EXPECT_EQ(json_text(header.metadata, "one.string", ""), "na\u00efve");
  EXPECT_TRUE(json_flag(header.metadata, "one.bool", false));
  EXPECT_EQ(print_json(*json_member(header.metadata, "some.words")), R"(["a","b c",""])");
  EXPECT_EQ(print_json(*json_member(header.metadata, "some.numbers")), "[1,-2,3]");
  ASSERT_EQ(header.tensors.size(), 3U);
  for (const GgufTensorEntry& entry : header.tensors) {
    const Json& recorded = *json_member(*json_member(fixture, "tensors"), entry.name);
    EXPECT_EQ(entry.shape, tests::integers(*json_member(recorded, "shape")));
    const std::string bytes = file.substr(entry.begin, entry.end - entry.begin);
    const std::vector<float> expected = floats_of(*json_member(recorded, "values"));
    if (entry.type == GgufType::kFloat32)
      EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0);
    else if (is_quantized(entry.type))
      expect_near(values_of(entry.type, bytes), expected, entry.name);
    else
      EXPECT_EQ(bytes.size(), expected.size() * 2);
  }
}

TEST(Gguf, FilesThatEndEarlyAreErrors) {
  const std::string file = bytes_of(*json_member(tests::read_fixture("gguf.json"), "file"));
  const GgufHeader header = parse_gguf_header(file, "whole.gguf");
  uint64_t end = 0;  // of all but the padding
  for (const GgufTensorEntry& entry : header.tensors) end = std::max(end, entry.end);
  ASSERT_GT(end, 500U);
  for (size_t size = 0; size < end; size++)
    EXPECT_THROW(parse_gguf_header({file.data(), size}, "short.gguf"), Error) << size;
}

// A file of one tensor, whose parts a test changes.
struct SmallFile {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::string metadata;
  uint64_t entries = 0;
  std::vector<uint64_t> sizes = {32};
  uint32_t type = 8;
  uint64_t offset = 0;

  static std::string bytes(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }
  template <typename Number>
  static std::string number(Number value) {
    return bytes(&value, sizeof(value));
  }
  static std::string text(const std::string& value) { return number<uint64_t>(value.size()) + value; }

  std::string print() const {
    std::string file = magic + number(version) + number<uint64_t>(1) + number(entries) + metadata + text("weight");
    file += number(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) file += number(size);
    file += number(type) + number(offset);
    return file + std::string(32 - file.size() % 32 + 34, '\0');
  }
};

TEST(Gguf, WrongHeadersAreErrorsThatNameWhatIsWrong) {
  EXPECT_EQ(parse_gguf_header(SmallFile().print(), "small.gguf").tensors.front().shape, std::vector<int64_t>{32});
  const auto refused = [](Status status, const std::string& part, const std::function<void(SmallFile&)>& change) {
    SmallFile file;
    change(file);
    expect_error(status, part, [&] { parse_gguf_header(file.print(), "small.gguf"); });
  };
  refused(Status::kCorrupt, "does not begin with GGUF", [](SmallFile& file) { file.magic = "GGUG"; });
  refused(Status::kUnsupported, "of version 1; expected version 2 or 3", [](SmallFile& file) { file.version = 1; });
  refused(Status::kUnsupported, "big-endian", [](SmallFile& file) { file.version = 3U << 24; });
  refused(Status::kUnsupported, "has the GGUF type 10; expected one of F32, F16",
          [](SmallFile& file) { file.type = 10; });
  refused(Status::kCorrupt, "rows of 33 numbers; expected a multiple of 32",
          [](SmallFile& file) { file.sizes = {33}; });
  refused(Status::kCorrupt, "5 dimensions", [](SmallFile& file) { file.sizes = {32, 1, 1, 1, 1}; });
  refused(Status::kCorrupt, "too large", [](SmallFile& file) { file.sizes = {32, UINT64_MAX / 8}; });
  refused(Status::kCorrupt, "no multiple of 32", [](SmallFile& file) { file.offset = 2; });
  refused(Status::kCorrupt, "behind the end of the file", [](SmallFile& file) { file.offset = 64; });
  const auto entry = [](const std::string& key, uint32_t type, const std::string& value) {
    return SmallFile::text(key) + SmallFile::number(type) + value;
  };
  const auto with = [&](uint64_t entries, const std::string& metadata) {
    return [=](SmallFile& file) {
      file.entries = entries;
      file.metadata = metadata;
    };
  };
  const std::string one = SmallFile::number<uint32_t>(1);
  refused(Status::kCorrupt, "'a' twice", with(2, entry("a", 4, one) + entry("a", 4, one)));
  refused(Status::kCorrupt, "the type 13", with(1, entry("a", 13, one)));
  refused(Status::kCorrupt, "expected 0 or 1", with(1, entry("a", 7, "\2")));
  refused(Status::kCorrupt, "general.alignment",
          with(1, entry("general.alignment", 4, SmallFile::number<uint32_t>(0))));
  refused(Status::kCorrupt, "more than the file has bytes",
          with(1, entry("a", 9, SmallFile::number<uint32_t>(0) + SmallFile::number(UINT64_MAX))));
  std::string deep;
  for (int i = 0; i < 8; i++) deep += SmallFile::number<uint32_t>(9) + SmallFile::number<uint64_t>(1);
  refused(Status::kCorrupt, "deeper than 4", with(1, entry("a", 9, deep)));
}

}  // namespace
}  // namespace accel::checkpoint
