// SPDX-License-Identifier: Apache-2.0
// Files of models: split as Accelerate splits them, written without a moment at which a reader finds a mixture.
#include "checkpoint/formats/model_files.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cerrno>

#include "checkpoint/formats/sharded_index.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "checkpoint_fixture.hpp"

namespace accel::checkpoint {
namespace model_files_test {

using namespace checkpoint::tests;

NamedTensors example_model(double number = 0.5) {
  const at::Tensor tied = at::full({5, 5}, number);
  return {{"norm.weight", at::full({5}, number)},
          {"first.weight", tied},
          {"first.bias", at::full({5}, number)},
          {"second.weight", tied},
          {"count", at::full({}, 3, at::kLong)}};
}

bool same_tensors(const NamedTensors& a, const NamedTensors& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const auto& entry) {
           const auto found =
               std::find_if(b.begin(), b.end(), [&](const auto& other) { return other.first == entry.first; });
           return found != b.end() && same(entry.second, found->second);
         });
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

SaveModelSettings options_of(uint64_t max_shard_size, bool safe) {
  SaveModelSettings settings;
  settings.max_shard_size = std::to_string(max_shard_size);
  settings.safe_serialization = safe;
  return settings;
}

using Files = std::vector<std::string>;

TEST(ModelFiles, OneFileHoldsAModelThatFits) {
  for (const bool safe : {true, false}) {
    const Folder folder;
    const std::string name = safe ? "model.safetensors" : "pytorch_model.bin";
    EXPECT_EQ(save_model(folder / "m", example_model(), options_of(10'000'000'000, safe), quick_files()), Files{name});
    EXPECT_EQ(names_in(folder / "m"), Files{name});
    for (const std::string& path : {folder / "m", folder / ("m/" + name)}) {
      const NamedTensors loaded = load_state_dict(path);
      EXPECT_TRUE(same_tensors(loaded, example_model()));
      const auto tensor = [&](const char* wanted) {
        return std::find_if(loaded.begin(), loaded.end(), [&](const auto& entry) { return entry.first == wanted; })
            ->second;
      };
      EXPECT_EQ(tensor("first.weight").const_data_ptr(), tensor("second.weight").const_data_ptr());
    }
  }
}

// The order and the splits are those of huggingface_hub.split_torch_state_dict_into_shards() for the same tensors.
TEST(ModelFiles, TensorsAreSplitAsTheReferenceSplitsThem) {
  const auto floats = [](int64_t count) { return at::zeros({count}); };
  const at::Tensor shared = floats(10);
  const NamedTensors tensors = {{"a", floats(5)},  {"b", floats(30)},          {"c", floats(5)}, {"d", shared},
                                {"e", floats(12)}, {"f", shared.view({2, 5})}, {"g", floats(1)}};
  const ShardedModel model = split_into_shards(tensors, 80, "model{suffix}.bin");
  std::vector<std::vector<std::string>> names;
  for (const Shard& shard : model.shards) {
    names.emplace_back();
    for (const auto& [name, tensor] : shard.tensors) names.back().push_back(name);
  }
  EXPECT_EQ(names, (std::vector<std::vector<std::string>>{{"b"}, {"a", "c", "d", "f"}, {"e", "g"}}));
  EXPECT_EQ(model.shards[1].file, "model-00002-of-00003.bin");
  EXPECT_EQ(model.index.total_size, 63 * sizeof(float));
  EXPECT_EQ(split_into_shards(tensors, 1000, "m{suffix}").shards.at(0).file, "m");
  EXPECT_EQ(split_into_shards({}, 1000, "m{suffix}").shards.size(), 1U);
  expect_error(Status::kInvalidArgument, "max_shard_size is 0", [&] { split_into_shards(tensors, 0, "m{suffix}"); });
}

TEST(ModelFiles, TheIndexIsTheReferencesDocument) {
  const ShardedIndex index{228, {{"b\n\"é漢😀\x7f", "model-00002-of-00002.bin"}, {"a", "model-00001-of-00002.bin"}}};
  const std::string document = print_sharded_index(index);
  EXPECT_EQ(document,
            "{\n  \"metadata\": {\n    \"total_size\": 228\n  },\n  \"weight_map\": {\n"
            "    \"a\": \"model-00001-of-00002.bin\",\n"
            "    \"b\\n\\\"\\u00e9\\u6f22\\ud83d\\ude00\\u007f\": \"model-00002-of-00002.bin\"\n  }\n}\n");
  const ShardedIndex read = parse_sharded_index(document, "index");
  EXPECT_EQ(read.total_size, 228U);
  EXPECT_EQ(read.weight_map.size(), 2U);
  EXPECT_EQ(read.weight_map[1], index.weight_map[0]);
}

TEST(ModelFiles, WrongIndexesAreRefused) {
  const std::vector<std::pair<std::string, std::string>> attempts = {
      {"", "its JSON"},
      {"[]", "not a JSON object"},
      {"{}", "no 'weight_map'"},
      {R"({"weight_map": []})", "no 'weight_map'"},
      {R"({"weight_map": {"a": 3}})", "not a name of a file beside it"},
      {R"({"weight_map": {"a": "../../etc/passwd"}})", "not a name of a file beside it"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "not a name of a file beside it"},
      {R"({"weight_map": {"a": ".."}})", "not a name of a file beside it"},
      {R"({"weight_map": {"a": ""}})", "not a name of a file beside it"},
      {R"({"weight_map": {"a": "b\u0000c"}})", "not a name of a file beside it"},
      {R"({"weight_map": {"a": "x", "a": "y"}})", "'a' twice"},
      {std::string(2000, '[') + std::string(2000, ']'), "its JSON"},
  };
  for (const auto& [document, part] : attempts)
    expect_error(Status::kCorrupt, part, [&, &document = document] { parse_sharded_index(document, "i.json"); });
}

TEST(ModelFiles, ShardsAndTheirIndexAreLoaded) {
  for (const bool safe : {true, false}) {
    const Folder folder;
    const std::string path = folder / "m";
    const Files files = save_model(path, example_model(), options_of(60, safe), quick_files());
    EXPECT_EQ(files.size(), 3U);
    const std::string index = safe ? "model.safetensors.index.json" : "pytorch_model.bin.index.json";
    EXPECT_EQ(files.back(), index);
    EXPECT_TRUE(same_tensors(load_state_dict(path), example_model()));
    EXPECT_TRUE(same_tensors(load_state_dict(path + "/" + index), example_model()));

    fs::remove(path + "/" + files[1]);
    expect_error(Status::kNotFound, files[1], [&] { load_state_dict(path); });
    write_text(path + "/" + files[1], read_text(path + "/" + files[0]));
    expect_error(Status::kCorrupt, "two files", [&] { load_state_dict(path); });
    save_value(path + "/" + files[1], map_of({{"other", at::ones({1})}}), safe, {}, quick_files());
    expect_error(Status::kCorrupt, "which '" + path, [&] { load_state_dict(path); });
  }
}

TEST(ModelFiles, FilesOfAnEarlierSaveGo) {
  for (const bool safe : {true, false}) {
    const Folder folder;
    const std::string path = folder / "m";
    const auto save = [&](double number, uint64_t size) {
      const Files files = save_model(path, example_model(number), options_of(size, safe), quick_files());
      EXPECT_TRUE(same_tensors(load_state_dict(path), example_model(number))) << size;
      return files;
    };
    save(1, 60);
    write_text(path + "/config.json", "{}");
    write_text(path + "/model-1-of-2.safetensors", "not a shard");
    for (const uint64_t size : {uint64_t{1000}, uint64_t{60}, uint64_t{60}, uint64_t{100}, uint64_t{1000}}) {
      Files expected = save(static_cast<double>(size), size);
      expected.insert(expected.end(), {"config.json", "model-1-of-2.safetensors"});
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(names_in(path), expected) << size;
    }
  }
}

// Fails at the n-th call that changes a folder.
class FailingFiles final : public QuickFiles {
 public:
  explicit FailingFiles(int calls) : left_(calls) {}
  int rename(const char* from, const char* to) override { return fails() ? -1 : FileSystem::rename(from, to); }
  int remove_file(const char* path) override { return fails() ? -1 : FileSystem::remove_file(path); }
  bool failed() const { return left_ < 0; }

 private:
  bool fails() {
    errno = EIO;
    return left_ < 0 || left_-- == 0;  // a process that is gone does nothing more
  }
  int left_;
};

TEST(ModelFiles, AReaderNeverFindsAMixture) {
  const std::pair<uint64_t, uint64_t> kSizes[] = {{60, 60}, {60, 100}, {60, 1000}, {1000, 60}, {1000, 1000}};
  for (const bool safe : {true, false}) {
    for (const auto& [before, after] : kSizes) {
      for (int calls = 0, done = 0; done == 0; calls++) {
        const Folder folder;
        const std::string path = folder / "m";
        save_model(path, example_model(1), options_of(before, safe), quick_files());
        FailingFiles files(calls);
        try {
          save_model(path, example_model(2), options_of(after, safe), files);
          done = 1;
        } catch (const Error&) {
        }
        done = files.failed() ? 0 : 1;
        const NamedTensors loaded = load_state_dict(path);
        EXPECT_TRUE(same_tensors(loaded, example_model(1)) || same_tensors(loaded, example_model(2)))
            << safe << " " << before << " " << after << " " << calls;
      }
    }
  }
}

TEST(ModelFiles, WhatCannotBeSavedOrLoadedIsNamed) {
  const Folder folder;
  write_text(folder / "file", "x");
  expect_error(Status::kAlreadyExists, "is a file", [&] { save_model(folder / "file", example_model()); });
  expect_error(Status::kTypeMismatch, "'w' is on the meta device", [&] {
    save_model(folder / "m", {{"w", at::empty({2}, at::kMeta)}});
  });
  EXPECT_FALSE(fs::exists(folder / "m"));
  fs::create_directory(folder / "empty");
  expect_error(Status::kNotFound, "has no pytorch_model.bin", [&] { load_state_dict(folder / "empty"); });
  for (const char* name : {"a.index.json", "b.index.json"}) write_text(folder / ("empty/" + std::string(name)), "{}");
  expect_error(Status::kInvalidState, "two indexes", [&] { load_state_dict(folder / "empty"); });
  save_torch_file(folder / "list.bin", at::ones({1}), quick_files());
  expect_error(Status::kTypeMismatch, "holds a tensor", [&] { load_state_dict(folder / "list.bin"); });
  save_torch_file(folder / "nested.bin", map_of({{"model", map_of({})}}), quick_files());
  expect_error(Status::kTypeMismatch, "has a map under the key model", [&] { load_state_dict(folder / "nested.bin"); });
  expect_error(Status::kNotFound, "nothing", [&] { load_state_dict(folder / "nothing"); });
}

TEST(ModelFiles, SizesOfShardsAreParsedAsTheReferenceParsesThem) {
  EXPECT_EQ(parse_shard_size("10GB"), 10'000'000'000U);
  EXPECT_EQ(parse_shard_size(" 1.5 mb "), 1'500'000U);
  EXPECT_EQ(parse_shard_size("2tb"), 2'000'000'000'000U);
  EXPECT_EQ(parse_shard_size("0.001KB"), 1U);
  EXPECT_EQ(parse_shard_size("5000"), 5000U);
  for (const char* wrong : {"", "0", "GB", "10GiB", "x GB", "-1GB", "nanGB", "infGB", "0KB", "1e30TB", "10 G B"})
    expect_error(Status::kInvalidArgument, "max_shard_size is", [&] { parse_shard_size(wrong); });
}

TEST(SavedValue, EitherFormatIsRecognisedByItsContent) {
  const Folder folder;
  const c10::IValue tensors = map_of({{"a", at::ones({2})}, {"b", at::zeros({3}, at::kLong)}});
  const c10::IValue other = map_of({{"a", at::ones({2})}, {"step", 3}});
  for (const c10::IValue& value : {tensors, other, c10::IValue(2.5), c10::IValue()}) {
    save_value(folder / "value", value, false, {}, quick_files());
    EXPECT_TRUE(tree::equal(load_value(folder / "value"), value));
    EXPECT_EQ(read_text(folder / "value").substr(0, 2), "PK");
  }
  save_value(folder / "value", tensors, true, {}, quick_files());
  EXPECT_TRUE(tree::equal(load_value(folder / "value"), tensors));
  EXPECT_EQ(read_text(folder / "value").substr(8, 1), "{");
  expect_error(Status::kTypeMismatch, "'step'", [&] { save_value(folder / "v", other, true); });
  expect_error(Status::kTypeMismatch, "a double", [&] { save_value(folder / "v", c10::IValue(2.5), true); });
  expect_error(Status::kInvalidArgument, "metadata", [&] { save_value(folder / "v", other, false, {{"a", "b"}}); });
}

TEST(SavedValue, TiedTensorsComeBackUnderAllNames) {
  const Folder folder;
  const at::Tensor tied = at::arange(100, at::kFloat);
  const c10::IValue value = map_of({{"a", tied}, {"b", at::ones({1})}, {"c", tied}});
  for (const bool safe : {true, false}) {
    save_value(folder / "value", value, safe, {}, quick_files());
    EXPECT_LT(fs::file_size(folder / "value"), 800U + (safe ? 0 : 1500));
    const auto map = load_value(folder / "value").toGenericDict();
    EXPECT_EQ(map.size(), 3U);
    EXPECT_EQ(map.at("a").toTensor().const_data_ptr(), map.at("c").toTensor().const_data_ptr());
  }
}

}  // namespace model_files_test
}  // namespace accel::checkpoint
