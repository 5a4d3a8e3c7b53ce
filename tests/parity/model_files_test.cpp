// SPDX-License-Identifier: Apache-2.0
// Folders of save_model() that Accelerate wrote: they load, and the same model is saved into the same files.
#include "checkpoint/formats/model_files.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "checkpoint/formats/file_names.hpp"
#include "checkpoint/formats/sharded_index.hpp"
#include "fixture.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace model_files_test {

namespace fs = std::filesystem;
using checkpoint::NamedTensors;

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

const at::Tensor* find(const NamedTensors& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

// The model in the order of its state_dict. Accelerate's safetensors files lack the second name of tied weights.
NamedTensors ordered(const NamedTensors& loaded, const c10::IValue& state_dict) {
  NamedTensors tensors;
  for (const auto& entry : state_dict.toGenericDict()) {
    const std::string& name = entry.key().toStringRef();
    const at::Tensor* tensor = find(loaded, name);
    if (tensor == nullptr) tensor = find(loaded, name == "head.weight" ? "embed.weight" : "first.weight");
    tensors.emplace_back(name, *tensor);
  }
  return tensors;
}

std::string shard_size(const c10::IValue& given) {
  return given.isString() ? given.toStringRef() : std::to_string(given.toInt());
}

class SavedFolder {
 public:
  SavedFolder() {
    std::string name = (fs::temp_directory_path() / "accel-model-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~SavedFolder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The bytes, but of the header of a safetensors file without the spaces at its end: ours has more of them, so that the
// data begins at a cache line.
std::string contents_of(const std::string& path) {
  std::string bytes = read_bytes(path);
  if (fs::path(path).extension() != ".safetensors") return bytes;
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const size_t data = sizeof header + header, end = bytes.find_last_not_of(' ', data - 1) + 1;
  return bytes.substr(sizeof header, end - sizeof header) + bytes.substr(data);
}

TEST(ModelFilesParity, FoldersOfTheReferenceLoadAndAreWrittenTheSame) {
  int count = 0;
  for (const Case& recorded : read_cases("checkpoints/expected")) {
    if (member(recorded.input, "kind").toStringRef() != "save_model") continue;
    SCOPED_TRACE(recorded.name);
    count++;
    const std::string reference = fixture_folder() + "/checkpoints/" + recorded.name;
    const c10::IValue state_dict = member(recorded.expected, "state_dict");
    const NamedTensors loaded = checkpoint::load_state_dict(reference);
    const NamedTensors model = ordered(loaded, state_dict);
    for (const auto& [name, tensor] : model) {
      const c10::IValue summary = member(state_dict, name);
      EXPECT_EQ(tensor::dtype_name(tensor.scalar_type()), member(summary, "dtype").toStringRef()) << name;
      EXPECT_EQ(tensor.sizes().vec(), integers(member(summary, "shape"))) << name;
      EXPECT_NEAR(tensor.to(at::kDouble).sum().item<double>(), member(summary, "sum").toScalar().toDouble(), 1e-5)
          << name;
    }

    const SavedFolder folder;
    const bool safe = member(recorded.input, "safe").toBool();
    SaveModelSettings settings;
    settings.max_shard_size = shard_size(member(recorded.input, "max_shard_size"));
    settings.safe_serialization = safe;
    checkpoint::save_model(folder.path(), model, settings);
    EXPECT_EQ(names_in(folder.path()), names_in(reference));
    const bool is_tied = model.size() != loaded.size() || !safe;
    for (const std::string& name : names_in(reference)) {
      const bool is_index = name == checkpoint::kWeightsIndexName || name == checkpoint::kSafeWeightsIndexName;
      if (!is_index && is_tied) continue;  // files with tied weights have their other names, too
      EXPECT_TRUE(contents_of(folder.path() + "/" + name) == contents_of(reference + "/" + name)) << name;
    }
    const NamedTensors again = checkpoint::load_state_dict(folder.path());
    EXPECT_EQ(again.size(), model.size());
    for (const auto& [name, tensor] : model) {
      ASSERT_NE(find(again, name), nullptr) << name;
      EXPECT_TRUE(at::equal(*find(again, name), tensor)) << name;
    }
  }
  EXPECT_EQ(count, 7);
}

}  // namespace model_files_test
}  // namespace accel::parity
