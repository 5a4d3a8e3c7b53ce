// SPDX-License-Identifier: Apache-2.0
// Files of tensors: they come back as they were, and damaged ones are refused.
#include "checkpoint/formats/safetensors.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>
#include <sys/stat.h>

#include "checkpoint_fixture.hpp"

namespace accel::checkpoint {
namespace safetensors_test {

using namespace checkpoint::tests;

std::string file_of(const std::string& header, const std::string& data = "") {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; i++) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

TEST(Safetensors, EveryDtypeAndShapeComesBack) {
  const Folder folder;
  std::mt19937 random(1);
  for (int round = 0; round < 50; round++) {
    NamedTensors tensors;
    for (int i = 0; i < 12; i++)
      tensors.emplace_back("t" + std::to_string(random()) + random_text(random), random_tensor(random));
    const Metadata metadata = {{"format", "pt"}, {random_text(random) + "x", random_text(random)}};
    save_safetensors(folder / "t.safetensors", tensors, metadata, quick_files());
    const SafetensorsContents loaded = load_safetensors(folder / "t.safetensors");
    EXPECT_EQ(loaded.metadata, metadata);
    ASSERT_EQ(loaded.tensors.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      const auto found = std::find_if(loaded.tensors.begin(), loaded.tensors.end(),
                                      [&name = name](const auto& entry) { return entry.first == name; });
      ASSERT_NE(found, loaded.tensors.end()) << name;
      EXPECT_TRUE(same(found->second, tensor)) << name;
    }
  }
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(Safetensors, TensorsAreOrderedAsTheReferenceOrdersThem) {
  const Folder folder;
  save_safetensors(
      folder / "t",
      {{"b", at::zeros({1}, at::kHalf)}, {"z", at::zeros({1}, at::kLong)}, {"a", at::zeros({2}, at::kHalf)}},
      {{"format", "pt"}});
  const std::string file = read_text(folder / "t");
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"z":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},"b":{"dtype":"F16","shape":[1],"data_offsets":[12,14]}})";
  EXPECT_EQ(file.substr(8, header.size()), header);
  EXPECT_EQ((file.size() - 14) % 8, 0U);
}

TEST(Safetensors, ViewsOfAllKindsAreWritten) {
  const Folder folder;
  const at::Tensor base = at::arange(24, at::kFloat).view({4, 6});
  const at::Tensor complex = at::view_as_complex(at::arange(8, at::kFloat).view({4, 2}).contiguous());
  const NamedTensors tensors = {{"rows", base.slice(0, 1, 3)},
                                {"step", base.slice(1, 0, 6, 2)},
                                {"expanded", at::ones({1, 3}).expand({4, 3})},
                                {"conjugate", complex.conj()},
                                {"grad", at::ones({2}).requires_grad_()},
                                {"scalar", at::scalar_tensor(3.5)}};
  save_safetensors(folder / "t", tensors, {});
  for (const auto& [name, tensor] : load_safetensors(folder / "t").tensors) {
    const auto original = std::find_if(tensors.begin(), tensors.end(),
                                       [&, wanted = name](const auto& entry) { return entry.first == wanted; });
    EXPECT_TRUE(at::equal(tensor, original->second.detach().resolve_conj())) << name;
    EXPECT_FALSE(tensor.requires_grad());
  }
}

TEST(Safetensors, LoadedTensorsMayBeWrittenAndOutliveTheFile) {
  const Folder folder;
  save_safetensors(folder / "t", {{"a", at::ones({1000})}}, {});
  at::Tensor tensor = load_safetensors(folder / "t").tensors[0].second;
  tensor.add_(1);
  EXPECT_EQ(load_safetensors(folder / "t").tensors[0].second.sum().item<double>(), 1000);
  save_safetensors(folder / "t", {{"a", tensor}}, {});  // over the file that it is mapped from
  fs::remove(folder / "t");
  EXPECT_EQ(tensor.sum().item<double>(), 2000);
}

TEST(Safetensors, MisalignedTensorsAreCopied) {
  const Folder folder;
  std::string data(9, '\0');
  const float one = 1;
  std::memcpy(&data[1], &one, 4);
  std::memcpy(&data[5], &one, 4);
  write_text(
      folder / "t",
      file_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
          data));
  const at::Tensor tensor = load_safetensors(folder / "t").tensors[1].second;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 4, 0U);
  EXPECT_EQ(tensor.sum().item<double>(), 2);
}

TEST(Safetensors, NumbersOf4BitsAreStoredInPairs) {
  const Folder folder;
  const at::Tensor pairs = at::arange(8, at::kByte).view({2, 4}).view(at::kFloat4_e2m1fn_x2);
  save_safetensors(folder / "t", {{"a", pairs}}, {});
  const std::string header = R"({"a":{"dtype":"F4","shape":[2,8],"data_offsets":[0,8]}})";
  EXPECT_EQ(read_text(folder / "t").substr(8, header.size()), header);
  const at::Tensor loaded = load_safetensors(folder / "t").tensors[0].second;
  EXPECT_EQ(loaded.scalar_type(), at::kFloat4_e2m1fn_x2);
  EXPECT_EQ(loaded.sizes(), pairs.sizes());
  EXPECT_TRUE(at::equal(loaded.view(at::kByte), pairs.view(at::kByte)));
  for (const auto& [dtype, shape, part] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"F4", "[2,3]", "multiple of 2"}, {"F4", "[]", "multiple of 2"}, {"F6_E2M3", "[4]", "6 bits"}}) {
    const std::string wrong = R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,3]}})";
    write_text(folder / "wrong", file_of(wrong, "abc"));
    expect_error(dtype == "F4" ? Status::kCorrupt : Status::kUnsupported, part,
                 [&] { load_safetensors(folder / "wrong"); });
  }
}

TEST(Safetensors, WhatCannotBeWrittenIsRefused) {
  const Folder folder;
  const auto save = [&](const char* name, const at::Tensor& tensor) {
    save_safetensors(folder / "t", {{name, tensor}}, {});
  };
  expect_error(Status::kTypeMismatch, "ComplexDouble", [&] { save("a", at::zeros({1}, at::kComplexDouble)); });
  expect_error(Status::kTypeMismatch, "sparse", [&] { save("a", at::eye(3).to_sparse()); });
  expect_error(Status::kTypeMismatch, "meta", [&] { save("a", at::empty({1}, at::kMeta)); });
  expect_error(Status::kTypeMismatch, "empty", [&] { save("a", {}); });
  expect_error(Status::kInvalidArgument, "__metadata__", [&] { save("__metadata__", at::ones({1})); });
  expect_error(Status::kInvalidArgument, "UTF-8", [&] { save("\xff", at::ones({1})); });
  expect_error(Status::kInvalidArgument, "two tensors", [&] {
    save_safetensors(folder / "t", {{"a", at::ones({1})}, {"a", at::ones({1})}}, {});
  });
  expect_error(Status::kIo, "no-folder", [&] { save_safetensors(folder / "no-folder/t", {}, {}); });
  EXPECT_EQ(folder.entries(), 0U);
}

struct Damage {
  const char* expected;
  std::string file;
};

// Regression: safetensors headers were taken that are not JSON.
TEST(Safetensors, EveryKindOfDamageIsNamed) {
  const Folder folder;
  const std::string f32 = R"("dtype":"F32","shape":[1])";
  std::string huge(8, '\xff');
  std::string too_long(8, '\0');
  for (size_t i = 0; i < 4; i++) too_long[i] = static_cast<char>(100'000'001 >> (8 * i));
  const std::vector<Damage> damages = {
      {"it has 0 bytes", ""},
      {"it has 7 bytes", "1234567"},
      {"at most 100000000", huge + "{}"},
      {"at most 100000000", too_long},
      {"only 2 follow", file_of("{}").replace(0, 1, "\x03")},
      {"expected a value", file_of("")},
      {"not a JSON object", file_of("[]")},
      {"not a JSON object", file_of("null")},
      {"not valid JSON", file_of(R"({"a":)")},
      {"after its JSON", file_of("{} x")},
      {"after its JSON", file_of("{}{}")},
      {"after its JSON", file_of(std::string("{}\0", 3))},
      {"not UTF-8", file_of("{\"\xff\":1}")},
      {"not escaped", file_of("{\"a\nb\":{}}")},
      {"not valid JSON", file_of("\xef\xbb\xbf{}")},
      {"not a valid safetensors", file_of(std::string(5000, '{'))},
      {"not a JSON object", file_of(R"({"a":1})")},
      {"the tensor 'a' twice",
       file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4]},"a":{)" + f32 + R"(,"data_offsets":[4,8]}})", "12345678")},
      {"the tensor 'a' twice",
       file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[7,11]},"a":{)" + f32 + R"(,"data_offsets":[0,4]}})", "1234")},
      {"metadata has 'a' twice", file_of(R"({"__metadata__":{"a":"1","b":"2","a":"3"}})")},
      {"twice", file_of(R"({"__metadata__":{},"__metadata__":{}})")},
      {"twice", file_of(R"({"a":{)" + f32 + R"(,"dtype":"I32","data_offsets":[0,4]}})", "1234")},
      {"not a string", file_of(R"({"__metadata__":{"a":1}})")},
      {"not a JSON object", file_of(R"({"__metadata__":[]})")},
      {"not valid JSON", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4],"x":02}})", "1234")},
      {"no dtype", file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "1234")},
      {"not a string", file_of(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", "1234")},
      {"no shape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "1234")},
      {"no data_offsets", file_of(R"({"a":{"dtype":"F32","shape":[1]}})", "1234")},
      {"not a list", file_of(R"({"a":{"dtype":"F32","shape":null,"data_offsets":[0,4]}})", "1234")},
      {"'F33'", file_of(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", "1234")},
      {"not a pair", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0]}})", "1234")},
      {"not a pair", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4,4]}})", "1234")},
      {"not an integer", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[-4,0]}})", "1234")},
      {"not an integer", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4.5]}})", "1234")},
      {"not an integer", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,1e300]}})", "1234")},
      {"not an integer", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0.0,4]}})", "1234")},
      {"not an integer", file_of(R"({"a":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}})", "1234")},
      {"not an integer", file_of(R"({"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}})")},
      {"leading zero", file_of(R"({"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}})", "1234")},
      {"not an integer", file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234")},
      {"not an integer", file_of(R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", "1234")},
      {"before its beginning", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[4,0]}})", "1234")},
      {"expected 4", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,8]}})", "12345678")},
      {"too large", file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})")},
      {"too large", file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})")},
      {"expected 0", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[4,8]}})", "12345678")},  // a hole at the start
      {"expected 4",
       file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4]},"b":{)" + f32 + R"(,"data_offsets":[8,12]}})",
               "123456789012")},
      {"expected 4",
       file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4]},"b":{)" + f32 + R"(,"data_offsets":[0,4]}})", "1234")},
      {"but 5 follow", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4]}})", "12345")},
      {"but 3 follow", file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4]}})", "123")},
      {"but 1 follow", file_of("{}", "x")},
  };
  for (const Damage& damage : damages) {
    write_text(folder / "damaged.safetensors", damage.file);
    SCOPED_TRACE(damage.file.substr(0, 200));
    expect_error(Status::kCorrupt, damage.expected, [&] { load_safetensors(folder / "damaged.safetensors"); });
    expect_error(Status::kCorrupt, "damaged.safetensors", [&] { load_safetensors(folder / "damaged.safetensors"); });
  }
  expect_error(Status::kNotFound, "missing", [&] { load_safetensors(folder / "missing"); });
  expect_error(Status::kIo, "regular", [&] { load_safetensors(folder / "."); });
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(Status::kIo, "regular", [&] { load_safetensors(folder / "pipe"); });
}

// Regression: safetensors headers were refused that Accelerate reads.
TEST(Safetensors, WhatTheReferenceReadsIsRead) {
  const Folder folder;
  const auto load = [&](const std::string& header, const std::string& data) {
    write_text(folder / "t", file_of(header, data));
    return load_safetensors(folder / "t");
  };
  const std::string first = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
  for (const std::string& header : {
           " \t\r\n{\"a\":{" + first + "}} \n",
           R"({"__metadata__":null,"a":{)" + first + "}}",
           R"({"a":{"note":[1,{"dtype":null}],)" + first + R"(,"note":2}})",
       }) {
    SCOPED_TRACE(header);
    const SafetensorsContents contents = load(header, "\x07");
    ASSERT_EQ(contents.tensors.size(), 1U);
    EXPECT_EQ(contents.tensors[0].first, "a");
    EXPECT_TRUE(at::equal(contents.tensors[0].second, at::full({1}, 7, at::kByte)));
    EXPECT_TRUE(contents.metadata.empty());
  }
  EXPECT_EQ(load(R"({"a\u0000b":{)" + first + "}}", "x").tensors[0].first, std::string("a\0b", 3));
  const std::string empty = R"({"a":{"dtype":"F32","shape":[0,1099511627776,1099511627776],"data_offsets":[0,0]}})";
  EXPECT_EQ(load(empty, "").tensors[0].second.sizes(), (std::vector<int64_t>{0, 1099511627776, 1099511627776}));
}

TEST(Safetensors, FlippedAndCutFilesNeverCrash) {
  const Folder folder;
  save_safetensors(folder / "t",
                   {{"a", at::arange(6, at::kFloat)}, {"b", at::arange(3, at::kLong)}, {"c", at::zeros({0, 3})}},
                   {{"k", "v"}});
  const std::string file = read_text(folder / "t");
  std::mt19937 random(2);
  const auto load = [&](const std::string& text) {
    try {
      for (const TensorEntry& entry : parse_safetensors_header(text, "t").tensors) EXPECT_LE(entry.end, text.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kCorrupt) << error.message();
    }
  };
  for (size_t size = 0; size < file.size(); size++) load(file.substr(0, size));
  for (int round = 0; round < 20000; round++) {
    std::string damaged = file;
    for (auto flips = random() % 3 + 1; flips > 0; flips--)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    load(damaged);
  }
}

TEST(Safetensors, TiedTensorsAreWrittenOnce) {
  const Folder folder;
  const at::Tensor weight = at::randn({4, 4});
  SafetensorsContents contents = drop_tied({{"wte", weight}, {"half", weight.slice(0, 0, 2)}, {"head", weight}});
  ASSERT_EQ(contents.tensors.size(), 2U);
  EXPECT_EQ(contents.metadata, (Metadata{{"head", "wte"}}));
  save_safetensors(folder / "t", contents.tensors, contents.metadata);
  SafetensorsContents loaded = load_safetensors(folder / "t");
  restore_tied(loaded);
  ASSERT_EQ(loaded.tensors.size(), 3U);
  EXPECT_EQ(loaded.tensors.back().first, "head");
  EXPECT_TRUE(same(loaded.tensors.back().second, weight));
}

// Regression: a model with a tensor "pt" could not be loaded: `"format": "pt"` of safetensors was taken for another
// name of it.
TEST(Safetensors, MetadataThatNameATensorAreNoTies) {
  const Folder folder;
  const NamedTensors tensors = {{"pt", at::ones({2})}, {"author", at::ones({1})}};
  SafetensorsContents contents = drop_tied(tensors, {{"format", "pt"}, {"author", "pt"}});
  save_safetensors(folder / "t", contents.tensors, contents.metadata);
  SafetensorsContents loaded = load_safetensors(folder / "t");
  restore_tied(loaded);
  EXPECT_EQ(loaded.tensors.size(), 2U);
  expect_error(Status::kInvalidArgument, "metadata['base'] is 'pt'", [&] { drop_tied(tensors, {{"base", "pt"}}); });
}

}  // namespace safetensors_test
}  // namespace accel::checkpoint
