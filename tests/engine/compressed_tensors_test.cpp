// SPDX-License-Identifier: Apache-2.0
// Files of compressed tensors: they come back bit for bit, and damaged ones are refused.
#include "checkpoint/formats/compressed_tensors.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "checkpoint/formats/compressed_header.hpp"
#include "checkpoint_fixture.hpp"

namespace accel::checkpoint {
namespace compressed_tensors_test {

using namespace checkpoint::tests;

uint64_t write(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {}, int level = 1) {
  fs::remove(path);
  OutputFile output(path, quick_files());
  write_compressed_tensors(output, tensors, metadata, level);
  output.finish();
  EXPECT_TRUE(has_compressed_header_of(path, tensors, metadata));
  return output.size();
}

SafetensorsContents read(const std::string& path) {
  return read_compressed_tensors(std::make_shared<const MappedFile>(path));
}

void expect_same(const NamedTensors& found, const NamedTensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); i++) {
    EXPECT_EQ(found[i].first, expected[i].first);
    EXPECT_TRUE(same(found[i].second, expected[i].second)) << found[i].first;
  }
}

TEST(CompressedTensors, EveryDtypeAndShapeComesBack) {
  const Folder folder;
  std::mt19937 random(1);
  for (int round = 0; round < 40; round++) {
    NamedTensors tensors;
    for (int i = 0; i < 12; i++) tensors.emplace_back(text("t", i, random_text(random)), random_tensor(random));
    const Metadata metadata = {{"format", "pt"}, {random_text(random) + "x", random_text(random)}};
    write(folder / "t", tensors, metadata);
    const SafetensorsContents loaded = read(folder / "t");
    EXPECT_EQ(loaded.metadata, metadata);
    expect_same(loaded.tensors, tensors);
  }
}

TEST(CompressedTensors, BlocksOfAnyNumberComeBack) {
  const Folder folder;
  constexpr auto kBlock = static_cast<int64_t>(kCompressedBlock);
  for (const int64_t bytes : {kBlock - 4, kBlock, kBlock + 4, 3 * kBlock + 8, 19 * kBlock - 12})
    for (const int level : {1, 3}) {
      const at::Tensor wave = at::arange(bytes / 4, at::kFloat).mul(1e-3).sin();
      const NamedTensors tensors = {
          {"wave", wave}, {"noise", at::randint(0, 256, {bytes}, at::kByte)}, {"half", wave.to(at::kBFloat16)}};
      const uint64_t size = write(folder / "t", tensors, {}, level);
      expect_same(read(folder / "t").tensors, tensors);
      EXPECT_LT(size, static_cast<uint64_t>(2.3 * static_cast<double>(bytes)));  // of 2.5
    }
}

TEST(CompressedTensors, WhatDoesNotShrinkIsMapped) {
  const Folder folder;
  const NamedTensors tensors = {{"a", at::zeros({1000})}, {"b", at::randint(0, 256, {3000}, at::kByte)}};
  write(folder / "t", tensors);
  const std::string file = read_text(folder / "t");
  const CompressedHeader header = parse_compressed_header(file, "t");
  EXPECT_EQ(header.tensors[0].block_sizes.size(), 1U);
  EXPECT_LT(header.tensors[0].block_sizes[0], 100U);
  EXPECT_TRUE(header.tensors[1].block_sizes.empty());
  EXPECT_EQ(header.tensors[1].offset % 64, 0U);
}

// The means of Adam and weights of a normal distribution: their exponents repeat.
TEST(CompressedTensors, FloatsShrink) {
  const Folder folder;
  const at::Tensor weights = at::randn({1 << 19}).mul(0.02);
  EXPECT_LT(write(folder / "fp32", {{"w", weights}}), (4U << 19) * 0.9);
  EXPECT_LT(write(folder / "bf16", {{"w", weights.to(at::kBFloat16)}}), (2U << 19) * 0.85);
}

TEST(CompressedTensors, DamageIsNamed) {
  const Folder folder;
  const NamedTensors tensors = {{"a", at::zeros({700000})}, {"b", at::randint(0, 256, {300}, at::kByte)}};
  write(folder / "t", tensors);
  const std::string file = read_text(folder / "t");
  const auto refuse = [&](const std::string& damaged) {
    write_text(folder / "d", damaged);
    expect_error(Status::kCorrupt, "/d'", [&] { read(folder / "d"); });
  };
  for (size_t size = 0; size < file.size(); size += 7) refuse(file.substr(0, size));
  refuse(file + "x");
  const auto replaced = [&](const std::string& part, const std::string& by) {
    std::string damaged = file;
    const size_t at = damaged.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    damaged.replace(at, part.size(), by);
    if (part.size() != by.size()) {  // its length is behind the header
      const size_t begin = damaged.find("{\"metadata\"");
      const uint64_t length = damaged.size() - begin - 16;
      for (size_t i = 0; i < 8; i++) damaged[damaged.size() - 16 + i] = static_cast<char>(length >> (8 * i));
    }
    return damaged;
  };
  for (const auto& [part, by] : std::vector<std::pair<std::string, std::string>>{
           {"\"shape\":[700000]", "\"shape\":[700001]"},
           {"\"shape\":[700000]", "\"shape\":[70000]"},
           {"\"shape\":[700000]", "\"shape\":[-1]"},
           {"\"shape\":[700000]", "\"shape\":[4294967296,4294967296]"},
           {"\"shape\":[300]", "\"shape\":[301]"},
           {"\"dtype\":\"uint8\"", "\"dtype\":\"uint9\""},
           {"\"dtype\":\"uint8\"", "\"dtype\":\"int16\""},
           {"\"shuffle\":4", "\"shuffle\":2"},
           {"\"shuffle\":4", "\"shuffle\":0"},
           {"\"offset\":8", "\"offset\":9"},
           {"\"offset\":8", "\"offset\":-8"},
           {"\"metadata\":{}", "\"metadata\":[]"},
           {"\"blocks\":[]", "\"blocks\":[1,2]"},
           {"\"name\":\"a\"", "\"name\":12"},
       })
    refuse(replaced(part, by));
  // Blocks that are not frames of Zstd, or of other sizes.
  std::string damaged = file;
  for (size_t at = 8; at < 24; at++) damaged[at] = '\0';
  refuse(damaged);
  expect_error(Status::kInvalidArgument, "level", [&] { write(folder / "x", tensors, {}, 0); });
  expect_error(Status::kInvalidArgument, "level", [&] { write(folder / "x", tensors, {}, 23); });
}

TEST(CompressedTensors, ATrainingStateMayBeCompressed) {
  const Folder folder;
  SaveOptions options;
  options.compression_level = 1;
  save_training_state(folder / "s", example(0, 3), Ranks(), quick_files(), options);
  EXPECT_EQ(number_of(folder / "s"), 3);
  EXPECT_TRUE(fs::exists(folder / "s/model.ztensors"));
  EXPECT_TRUE(fs::exists(folder / "s/optimizer.ztensors"));
  EXPECT_FALSE(fs::exists(folder / "s/model.safetensors"));
  save_training_state(folder / "s", example(0, 4), Ranks(), quick_files());
  EXPECT_EQ(number_of(folder / "s"), 4);
  EXPECT_FALSE(fs::exists(folder / "s/model.ztensors"));
}

}  // namespace compressed_tensors_test
}  // namespace accel::checkpoint
