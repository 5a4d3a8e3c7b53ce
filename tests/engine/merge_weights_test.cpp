// SPDX-License-Identifier: Apache-2.0
// One file of the weights that several ranks wrote in parts.
#include "checkpoint/merge_weights.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/formats/safetensors.hpp"
#include "checkpoint/formats/torch/distributed_checkpoint.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "checkpoint/save_training_state.hpp"
#include "checkpoint_fixture.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::checkpoint::tests::merge_weights {
namespace {

using checkpoint::merge_weights;

const std::string kFixture = std::string(ACCEL_TEST_FIXTURES) + "/distributed_checkpoint";

std::map<std::string, at::Tensor> by_name(const NamedTensors& tensors) { return {tensors.begin(), tensors.end()}; }

void expect_fixture(const std::map<std::string, at::Tensor>& tensors) {
  ASSERT_EQ(tensors.size(), 4);
  EXPECT_TRUE(same(tensors.at("linear.weight"), at::arange(15).to(at::kFloat).reshape({5, 3})));
  EXPECT_TRUE(same(tensors.at("linear.columns"), at::arange(8).reshape({2, 4})));
  EXPECT_TRUE(same(tensors.at("linear.bias"), at::arange(5).to(at::kBFloat16)));
  EXPECT_EQ(tensors.at("steps").item<int64_t>(), 7);
}

TEST(MergeWeights, OfTorchsDistributedCheckpoint) {
  Folder folder;
  merge_weights(kFixture, folder / "deep/merged", true, false);
  const SafetensorsContents contents = load_safetensors(folder / "deep/merged/model.safetensors");
  expect_fixture(by_name(contents.tensors));
  EXPECT_EQ(contents.metadata, (Metadata{{"format", "pt"}}));
  merge_weights(kFixture, folder / "deep/merged", false, false);
  const auto file = std::make_shared<const MappedFile>(folder / "deep/merged/pytorch_model.bin");
  expect_fixture(by_name(model_tensors(read_value(file))));
}

TEST(MergeWeights, TheFolderGoesOnRequest) {
  Folder folder;
  fs::copy(kFixture, folder / "parts");
  expect_error(Status::kInvalidArgument, "which is to be removed",
               [&] { merge_weights(folder / "parts", folder / "parts/merged", true, true); });
  merge_weights(folder / "parts", folder / "merged", true, true);
  EXPECT_FALSE(fs::exists(folder / "parts"));
  EXPECT_TRUE(fs::exists(folder / "merged/model.safetensors"));
}

TEST(MergeWeights, NamesWhatMayHaveBeenMeant) {
  Folder folder;
  expect_error(Status::kNotFound, "is not a folder",
               [&] { merge_weights(folder / "absent", folder / "m", true, false); });
  fs::create_directories(folder / "run");
  expect_error(Status::kNotFound, "no parts of a model",
               [&] { merge_weights(folder / "run", folder / "m", true, false); });
  fs::copy(kFixture, folder / "run/pytorch_model_fsdp_0");
  expect_error(Status::kNotFound, "run/pytorch_model_fsdp_0 is meant",
               [&] { merge_weights(folder / "run", folder / "m", true, false); });
  EXPECT_FALSE(fs::exists(folder / "m"));
}

// Each change of the fixture is an error that names a file, and nothing is written.
TEST(MergeWeights, DamageIsNamed) {
  const auto damage = [](const std::string& name, const std::function<void(const std::string&)>& change) {
    Folder folder;
    fs::copy(kFixture, folder / "parts");
    change(folder / ("parts/" + name));
    try {
      merge_weights(folder / "parts", folder / "merged", true, false);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.message()).find(name), std::string::npos) << error.message();
    }
    EXPECT_FALSE(fs::exists(folder / "merged"));
  };
  damage("__1_0.distcp", [](const std::string& path) { fs::remove(path); });
  damage("__1_0.distcp", [](const std::string& path) { fs::resize_file(path, 5000); });
  damage("__0_0.distcp", [](const std::string& path) { write_text(path, std::string(3154, 'x')); });
  damage(".metadata", [](const std::string& path) { fs::resize_file(path, fs::file_size(path) - 1); });
  damage(".metadata", [](const std::string& path) { write_text(path, "\x80\x04}."); });
  // A file outside of the folder.
  damage(".metadata", [](const std::string& path) {
    std::string text = read_text(path);
    for (size_t at; (at = text.find("__1_0.distcp")) != std::string::npos;) text.replace(at, 12, "../x0.distcp");
    write_text(path, text);
  });
}

TEST(MergeWeights, OfChunksOfRanks) {
  Folder folder;
  const at::Tensor whole = at::arange(12).to(at::kFloat).reshape({4, 3}), plain = at::arange(3);
  // As two ranks would write it, one after the other.
  auto model = tree::new_map();
  model.insert("rows", tensor::chunk_value(whole.slice(0, 0, 4).contiguous(),
                                           tensor::box_placement({4, 3}, {{0, 0}, {4, 3}}, "shard")));
  model.insert("plain", plain);
  save_training_state(
      folder / "state",
      [&](const std::string&) {
        return TrainingState{{StateKind::kModel, "", model, {}}};
      },
      {}, {}, quick_files());
  merge_weights(folder / "state", folder / "merged", true, false);
  const auto tensors = by_name(load_safetensors(folder / "merged/model.safetensors").tensors);
  ASSERT_EQ(tensors.size(), 2);
  EXPECT_TRUE(same(tensors.at("rows"), whole));
  EXPECT_TRUE(same(tensors.at("plain"), plain));
}

}  // namespace
}  // namespace accel::checkpoint::tests::merge_weights
