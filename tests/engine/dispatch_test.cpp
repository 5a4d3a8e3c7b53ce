// SPDX-License-Identifier: Apache-2.0
// Dispatch on the CPU: weights in files, mapped or brought by blocks.
#include "bigmodel/dispatch.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/any.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "big_model_fixture.hpp"
#include "bigmodel/aligned_module.hpp"
#include "bigmodel/layerwise_casting.hpp"
#include "bigmodel/module_tensor.hpp"
#include "bigmodel/offload_folder.hpp"
#include "bigmodel/streams/batch_schedule.hpp"
#include "expect_error.hpp"
#include "nn/call_order.hpp"
#include "nn/module_walks.hpp"
#include "nn_fixture.hpp"
#include "os/bus_error_guard.hpp"
#include "rank_threads.hpp"

namespace accel::bigmodel {
namespace dispatch_test {

using tests::block_bytes;
using tests::block_model;
using tests::BlockModelShape;
using tests::empty_block_model;
using tests::expect_error;
using tests::WeightFolder;

const DeviceMap kOnDisk = {{"", "disk"}};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kIsSanitized = true;  // the sanitizers' own memory grows
#else
constexpr bool kIsSanitized = false;
#endif

at::Tensor rows(int64_t width = 16) { return tests::pattern_tensor({3, width}, 5); }

at::Tensor forward(nn::Module& model, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  return model.call(input);
}

DispatchSettings small_blocks() {
  DispatchSettings settings;
  settings.block_bytes = 1;
  return settings;
}

DispatchSettings with_folder(const WeightFolder& folder, DispatchSettings settings = {}) {
  settings.offload_folder = folder.path();
  return settings;
}

void expect_meta(const nn::Module& model) {
  for (const auto& [name, parameter] : nn::named_parameters(model)) EXPECT_TRUE(parameter.is_meta()) << name;
}

bool is_mapped(const at::Tensor& tensor) { return !mapped_path(tensor.const_data_ptr()).empty(); }

TEST(Dispatch, WeightsThatStayOnTheCpuAreTheMappedFiles) {
  const auto model = block_model();
  const WeightFolder folder(*model);
  const auto empty = empty_block_model();
  const nn::LoadReport report = load_checkpoint_in_model(*empty, folder.weights(), nullptr, {});
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  for (const auto& [name, parameter] : nn::named_parameters(*empty)) EXPECT_TRUE(is_mapped(parameter)) << name;
  EXPECT_TRUE(at::equal(forward(*empty, rows()), forward(*model, rows())));

  DispatchSettings copies;
  copies.map_weights = false;
  const auto copied = empty_block_model();
  load_checkpoint_in_model(*copied, folder.weights(), nullptr, copies);
  for (const auto& [name, parameter] : nn::named_parameters(*copied)) EXPECT_FALSE(is_mapped(parameter)) << name;
  EXPECT_TRUE(at::equal(forward(*copied, rows()), forward(*model, rows())));
}

TEST(Dispatch, WritingToMappedWeightsLeavesTheFileAsItIs) {
  const auto model = block_model();
  const WeightFolder folder(*model);
  const auto empty = empty_block_model();
  load_checkpoint_in_model(*empty, folder.weights(), nullptr, {});
  nn::find_tensor(*empty, "layers.0.scale").detach().fill_(7);
  EXPECT_TRUE(at::equal(checkpoint::load_state_dict(folder.path())[0].second, folder.weights()[0].second));
  const auto again = empty_block_model();
  load_checkpoint_in_model(*again, folder.weights(), nullptr, {});
  EXPECT_TRUE(at::equal(nn::find_tensor(*again, "layers.0.scale"), nn::find_tensor(*model, "layers.0.scale")));
}

TEST(Dispatch, WeightsOnDiskAreThereInForwardsOnly) {
  const auto model = block_model();
  const WeightFolder folder(*model, 5000);  // several files
  for (const DispatchSettings& settings : {DispatchSettings(), small_blocks()}) {
    const auto empty = empty_block_model();
    load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, settings);
    expect_meta(*empty);
    for (int pass = 0; pass < 3; pass++) {
      EXPECT_TRUE(at::equal(forward(*empty, rows()), forward(*model, rows())));
      expect_meta(*empty);
    }
    const auto dispatch = Dispatch::of(*empty);
    EXPECT_EQ(dispatch->stream()->statistics().passes, 3);
    EXPECT_EQ(dispatch->stream()->statistics().peak_bytes, 0) << "mapped weights need no memory";
    EXPECT_EQ(dispatch->offloaded_bytes(), 4 * block_bytes({}));
  }
}

TEST(Dispatch, AModuleOfAModelMayBeCalledAlone) {
  const auto model = block_model();
  const WeightFolder folder(*model);
  const auto empty = empty_block_model();
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, {});
  for (const char* path : {"layers.2", "layers.1.in", "layers.3"}) {
    EXPECT_TRUE(at::equal(forward(*empty->find(path), rows()), forward(*model->find(path), rows()))) << path;
    expect_meta(*empty);
  }
}

TEST(Dispatch, WeightsAreConvertedBlockByBlock) {
  const BlockModelShape shape{6, 32, 64};
  const auto model = block_model(shape);
  const WeightFolder folder(*model);
  DispatchSettings settings;
  settings.dtype = Dtype::kBfloat16;
  settings.block_bytes = block_bytes(shape) / 2;
  const auto empty = empty_block_model(shape);
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, settings);
  model->to(at::kBFloat16, std::nullopt);
  const at::Tensor input = rows(32).to(at::kBFloat16);
  for (int pass = 0; pass < 3; pass++) EXPECT_TRUE(at::equal(forward(*empty, input), forward(*model, input)));
  const auto statistics = Dispatch::of(*empty)->stream()->statistics();
  EXPECT_EQ(statistics.brought_bytes % (block_bytes(shape) / 2), 0);
  EXPECT_GE(statistics.brought_bytes, 3 * 6 * block_bytes(shape) / 2);
  EXPECT_LE(statistics.brought_bytes, 4 * 6 * block_bytes(shape) / 2);
  EXPECT_LE(statistics.peak_bytes, 2 * block_bytes(shape) / 2 + 2 * 5 * 64) << "the block in use and the next one";
}

TEST(Dispatch, NothingComesAheadWithoutABudget) {
  const BlockModelShape shape{4, 32, 64};
  const auto model = block_model(shape);
  const WeightFolder folder(*model);
  DispatchSettings settings;
  settings.dtype = Dtype::kFloat64;
  settings.block_bytes = 2 * block_bytes(shape);
  settings.prefetch_bytes = 0;
  const auto empty = empty_block_model(shape);
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, settings);
  model->to(at::kDouble, std::nullopt);
  EXPECT_TRUE(at::equal(forward(*empty, rows(32).to(at::kDouble)), forward(*model, rows(32).to(at::kDouble))));
  EXPECT_LE(Dispatch::of(*empty)->stream()->statistics().peak_bytes, 2 * block_bytes(shape) + 5 * 64);
}

TEST(Dispatch, TiedWeightsAreTied) {
  BlockModelShape shape;
  shape.is_tied = true;
  const auto model = block_model(shape);
  const WeightFolder folder(*model);
  const at::Tensor tokens = at::ones({2, 3}, at::kLong);
  for (const DeviceMap& map : {kOnDisk, DeviceMap{{"embedding", "cpu"}, {"layers", "disk"}, {"head", "disk"}}}) {
    const auto empty = empty_block_model(shape);
    load_checkpoint_and_dispatch(*empty, folder.weights(), &map, small_blocks());
    for (int pass = 0; pass < 2; pass++) EXPECT_TRUE(at::equal(forward(*empty, tokens), forward(*model, tokens)));
    EXPECT_EQ(nn::find_tensor(*empty, "head.weight").unsafeGetTensorImpl(),
              nn::find_tensor(*empty, "embedding.weight").unsafeGetTensorImpl());
    EXPECT_EQ(nn::find_tensor(*empty, "head.weight").is_meta(), map.size() == 1) << "one place is enough";
    EXPECT_EQ(is_on_several_devices(*empty), map.size() > 1);
  }
}

TEST(Dispatch, FilesOfTorchAndOffloadFolders) {
  const auto model = block_model();
  const WeightFolder folder;
  SaveModelSettings options;
  options.safe_serialization = false;
  checkpoint::save_model(folder.path(), model->state_dict(), options);
  const auto empty = empty_block_model();
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, {});
  EXPECT_TRUE(at::equal(forward(*empty, rows()), forward(*model, rows())));

  const WeightFolder offload;
  const at::Tensor expected = forward(*model, rows());
  disk_offload(*model, offload.path(), c10::Device(c10::kCPU), {});
  expect_meta(*model);
  EXPECT_TRUE(at::equal(forward(*model, rows()), expected));
  // Again, with the index that is there.
  const auto other = block_model();
  nn::find_tensor(*other, "layers.0.scale").detach().zero_();
  disk_offload(*other, offload.path(), c10::Device(c10::kCPU), {});
  EXPECT_TRUE(at::equal(forward(*other, rows()), expected)) << "the weights of the folder are used";
}

TEST(Dispatch, LoadingWithAnOffloadFolderAndDispatchAfterwards) {
  const auto model = block_model();
  const WeightFolder folder(*model), offload;
  const DeviceMap map = {{"layers.0", "cpu"}, {"layers.1", "disk"}, {"layers.2", "disk"}, {"layers.3", "cpu"}};
  DispatchSettings settings;
  const auto empty = empty_block_model();
  expect_error(Status::kInvalidArgument, "offload_folder is not set",
               [&] { load_checkpoint_in_model(*empty, folder.weights(), &map, settings); });
  settings.offload_folder = offload.path();
  load_checkpoint_in_model(*empty, folder.weights(), &map, settings);
  EXPECT_TRUE(nn::find_tensor(*empty, "layers.1.scale").is_meta());
  EXPECT_FALSE(nn::find_tensor(*empty, "layers.3.scale").is_meta());
  uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(offload.path())) bytes += entry.file_size();
  EXPECT_LT(bytes, 4096U) << "the index points to the checkpoint";
  dispatch_model(*empty, map, {}, settings);
  EXPECT_TRUE(at::equal(forward(*empty, rows()), forward(*model, rows())));

  // Weights of another dtype than that of their file are written.
  settings.dtype = Dtype::kFloat64;
  const auto wide = empty_block_model();
  load_checkpoint_in_model(*wide, folder.weights(), &map, settings);
  dispatch_model(*wide, map, {}, settings);
  model->to(at::kDouble, std::nullopt);
  EXPECT_TRUE(at::equal(forward(*wide, rows().to(at::kDouble)), forward(*model, rows().to(at::kDouble))));
  EXPECT_TRUE(std::filesystem::exists(offload.file("layers.1.scale.dat")));
}

DispatchSettings with_buffers(DispatchSettings settings) {
  settings.offload_buffers = true;
  return settings;
}

// Names of the weights that have files of their own.
std::vector<std::string> written(const WeightFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    if (entry.path().extension() == ".dat") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> names_of_layer(int layer) {
  const std::string path = "layers." + std::to_string(layer);
  return {path + ".in.bias", path + ".in.weight", path + ".out.bias", path + ".out.weight", path + ".scale"};
}

bool is_file_on_disk(const nn::Module& model, const char* name) {
  const auto offloaded = Dispatch::of(model)->find(nn::find_tensor(model, name));
  return offloaded != nullptr && is_mapped(offloaded->source());
}

const DeviceMap kSecondOnDisk = {{"layers.0", "cpu"}, {"layers.1", "disk"}, {"layers.2", "cpu"}, {"layers.3", "cpu"}};

// Regression: weights on the disk stayed in memory where they had been there before, and no file was written.
// Regression: an older index's entries for weights that are not on the disk replaced the weights of the model.
TEST(Dispatch, WeightsOnDiskLeaveTheMemory) {
  const auto model = block_model();
  const at::Tensor expected = forward(*model, rows()), scale = nn::find_tensor(*model, "layers.1.scale");
  expect_error(Status::kInvalidArgument, "'layers.1.scale', 'layers.1.in.weight'",
               [&] { dispatch_model(*model, kSecondOnDisk, {}, {}); });
  expect_error(Status::kInvalidArgument, "offload_folder is not set",
               [&] { dispatch_model(*model, kSecondOnDisk, {}, {}); });
  EXPECT_EQ(Dispatch::of(*model), nullptr);
  EXPECT_FALSE(scale.is_meta());
  EXPECT_TRUE(at::equal(forward(*model, rows()), expected));

  const WeightFolder folder;
  const auto memory = c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(scale.storage().unsafeGetStorageImpl()));
  dispatch_model(*model, kSecondOnDisk, {}, with_folder(folder));
  EXPECT_TRUE(memory.expired()) << "the memory is free";
  EXPECT_EQ(written(folder), names_of_layer(1));
  EXPECT_TRUE(scale.is_meta() && is_file_on_disk(*model, "layers.1.scale"));
  EXPECT_TRUE(at::equal(forward(*model, rows()), expected));

  // The next one takes what the folder has of the weights on disk, and adds what it lacks.
  const auto other = block_model();
  for (const char* const name : {"layers.0.scale", "layers.1.scale", "layers.2.scale"})
    nn::find_tensor(*other, name).detach().zero_();
  DeviceMap two_on_disk = kSecondOnDisk;
  two_on_disk[2].second = "disk";
  offload_state_dict(folder.path(), {{"layers.0.scale", at::full({16}, 9.0F)}});  // older than the model
  dispatch_model(*other, two_on_disk, {}, with_folder(folder));
  EXPECT_TRUE(at::equal(other->state_dict()[5].second, model->state_dict()[5].second)) << "layers.1.scale";
  EXPECT_TRUE(is_file_on_disk(*other, "layers.2.scale"));
  EXPECT_EQ(written(folder).size(), 11U);
  EXPECT_FALSE(nn::find_tensor(*other, "layers.0.scale").any().item<bool>()) << "it is not on disk";
}

TEST(Dispatch, AllWaysToTheDiskWriteWhatNoFileHas) {
  const auto expected_model = block_model();
  const at::Tensor expected = forward(*expected_model, rows());
  const nn::NamedTensors weights = expected_model->state_dict();
  const nn::NamedTensors some(weights.begin(), weights.begin() + 7);
  const auto check = [&](nn::Module& model, size_t files, const WeightFolder& folder) {
    expect_meta(model);
    for (const auto& [name, tensor] : nn::named_parameters(model))
      EXPECT_TRUE(is_file_on_disk(model, name.c_str())) << name;
    EXPECT_EQ(written(folder).size(), files);
    EXPECT_TRUE(at::equal(forward(model, rows()), expected));
  };
  {
    const WeightFolder folder;  // with an index of some
    offload_state_dict(folder.path(), some);
    const auto model = block_model();
    disk_offload(*model, folder.path(), c10::Device(c10::kCPU), {});
    check(*model, weights.size(), folder);
  }
  {
    const WeightFolder checkpoint, folder;  // that lacks some
    checkpoint::save_model(checkpoint.path(), some, {});
    const auto model = block_model();
    expect_error(Status::kInvalidArgument, "offload_folder is not set",
                 [&] { load_checkpoint_and_dispatch(*model, checkpoint.weights(), &kOnDisk, {}); });
    load_checkpoint_and_dispatch(*model, checkpoint.weights(), &kOnDisk, with_folder(folder));
    check(*model, weights.size() - some.size(), folder);
  }
  {
    const WeightFolder checkpoint(*expected_model), folder;  // whose pages the model has changed
    const auto model = empty_block_model();
    load_checkpoint_in_model(*model, checkpoint.weights(), nullptr, {});
    nn::find_tensor(*model, "layers.1.scale").detach().zero_();
    dispatch_model(*model, kOnDisk, {}, with_folder(folder));
    EXPECT_EQ(written(folder).size(), weights.size());
    EXPECT_FALSE(model->state_dict()[5].second.any().item<bool>());
  }
  {
    const WeightFolder folder;  // what rank 0 sends
    DispatchSettings settings;
    settings.broadcast_from_rank0 = true;
    const auto model = empty_block_model();
    expect_error(Status::kInvalidArgument, "a folder for those that rank 0 sends",
                 [&] { load_checkpoint_and_dispatch(*model, weights, &kOnDisk, settings); });
    expect_meta(*model);
    EXPECT_EQ(Dispatch::of(*model), nullptr);
    load_checkpoint_and_dispatch(*model, weights, &kOnDisk, with_folder(folder, settings));
    check(*model, weights.size(), folder);
  }
}

TEST(Dispatch, BuffersAndTiedWeightsOnDisk) {
  BlockModelShape shape;
  shape.is_tied = true;
  const auto new_model = [&shape] {
    const auto model = block_model(shape);
    model->find("layers.1")->add_buffer("mean", at::ones({2}));
    model->find("layers.1")->add_buffer("cache", at::ones({2}), /*persistent=*/false);
    return model;
  };
  const at::Tensor tokens = at::ones({2, 3}, at::kLong), expected = forward(*new_model(), tokens);
  for (const bool offload_buffers : {false, true}) {
    const auto model = new_model();
    const WeightFolder folder;
    const DeviceMap map = {{"embedding", "cpu"}, {"layers", "cpu"}, {"layers.1", "disk"}, {"head", "disk"}};
    const DispatchSettings settings = with_folder(folder);
    dispatch_model(*model, map, {}, offload_buffers ? with_buffers(settings) : settings);
    EXPECT_EQ(written(folder).size(), 6U) << "the tied weight stays, and a buffer that is never saved is not a weight";
    EXPECT_FALSE(nn::find_tensor(*model, "head.weight").is_meta());
    EXPECT_EQ(nn::find_tensor(*model, "layers.1.mean").is_meta(), offload_buffers);
    EXPECT_TRUE(at::equal(forward(*model, tokens), expected));
  }
  const auto model = new_model();
  const WeightFolder folder;
  dispatch_model(*model, kOnDisk, {}, with_folder(folder));
  EXPECT_TRUE(at::equal(forward(*model, tokens), expected));
  EXPECT_TRUE(std::filesystem::exists(folder.file("head.weight.dat"))) << "each name, as Accelerate expects it";
  EXPECT_TRUE(std::filesystem::exists(folder.file("embedding.weight.dat")));
}

TEST(Dispatch, RanksWithoutTheFilesGetTheWeightsOfRankZero) {
  const auto model = block_model();
  const at::Tensor expected = forward(*model, rows());
  const nn::NamedTensors weights = model->state_dict();
  tests::run_ranks(3, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const nn::NamedTensors received =
        broadcast_weights(*communicator, communicator->rank() == 0 ? weights : nn::NamedTensors());
    ASSERT_EQ(received.size(), weights.size());
    const auto own = empty_block_model();
    load_checkpoint_and_dispatch(*own, received, &kOnDisk, {});
    EXPECT_TRUE(at::equal(forward(*own, rows()), expected)) << "rank " << communicator->rank();
  });
}

TEST(Dispatch, AnErrorInAForwardLeavesTheWeightsAway) {
  const auto model = block_model();
  const WeightFolder folder(*model);
  const auto empty = empty_block_model();
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, small_blocks());
  const nn::ModulePtr inner = empty->find("layers.2.out");
  const int64_t hook = inner->hooks().add_pre_hook([](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
    throw std::runtime_error("a hook of the program");
  });
  for (int i = 0; i < 3; i++) EXPECT_THROW(forward(*empty, rows()), std::runtime_error);
  expect_meta(*empty);
  inner->hooks().remove_hook(hook);
  EXPECT_TRUE(at::equal(forward(*empty, rows()), forward(*model, rows())));
  EXPECT_ANY_THROW(forward(*empty, rows(7)));  // of LibTorch
  expect_meta(*empty);
  EXPECT_TRUE(at::equal(forward(*empty, rows()), forward(*model, rows())));
}

TEST(Dispatch, AFileThatWasCutOffIsAnError) {
  const auto model = block_model({4, 64, 512});
  const WeightFolder folder(*model);
  for (const bool is_on_disk : {true, false}) {
    const auto empty = empty_block_model({4, 64, 512});
    const DeviceMap map = {{"", is_on_disk ? "disk" : "cpu"}};
    load_checkpoint_and_dispatch(*empty, folder.weights(), &map, {});
    const auto size = std::filesystem::file_size(folder.file("model.safetensors"));
    const nn::ModulePtr last = empty->find("layers.3");
    // In the middle of a pass, when the files were checked already.
    const int64_t hook = last->hooks().add_pre_hook([&](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
      std::filesystem::resize_file(folder.file("model.safetensors"), 4096);
      return std::nullopt;
    });
    expect_error(Status::kIo, "became shorter", [&] { forward(*empty, rows(64)); });
    last->hooks().remove_hook(hook);
    expect_error(Status::kIo, "was changed while a model used", [&] { forward(*empty, rows(64)); });
    std::filesystem::resize_file(folder.file("model.safetensors"), size);
    checkpoint::save_model(folder.path(), model->state_dict());
  }
}

TEST(Dispatch, AFileThatWasChangedIsAnErrorAndOneThatWasReplacedIsNot) {
  const auto model = block_model();
  const WeightFolder folder(*model);
  const auto empty = empty_block_model();
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, {});
  const at::Tensor expected = forward(*model, rows());
  nn::find_tensor(*model, "layers.0.scale").detach().zero_();
  checkpoint::save_model(folder.path(), model->state_dict());  // by another file of this name
  EXPECT_TRUE(at::equal(forward(*empty, rows()), expected));

  const auto changed = empty_block_model();
  load_checkpoint_and_dispatch(*changed, folder.weights(), &kOnDisk, {});
  forward(*changed, rows());
  std::fstream(folder.file("model.safetensors"), std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-4, std::ios::end)
      .write("abcd", 4);
  expect_error(Status::kIo, "was changed while a model used", [&] { forward(*changed, rows()); });

  // Removed: the mapping stays.
  const auto kept = empty_block_model();
  load_checkpoint_and_dispatch(*kept, folder.weights(), &kOnDisk, {});
  const at::Tensor before = forward(*kept, rows());
  std::filesystem::remove(folder.file("model.safetensors"));
  EXPECT_TRUE(at::equal(forward(*kept, rows()), before));
}

TEST(Dispatch, FilesOfWeightsThatWereReplacedMayChange) {
  const auto first = block_model(), second = block_model();
  nn::find_tensor(*second, "layers.0.scale").detach().zero_();
  const WeightFolder former(*first), present(*second);
  const auto model = empty_block_model();
  load_checkpoint_in_model(*model, former.weights(), nullptr, {});
  load_checkpoint_in_model(*model, present.weights(), nullptr, {});
  std::filesystem::resize_file(former.file("model.safetensors"), 100);
  EXPECT_TRUE(at::equal(forward(*model, rows()), forward(*second, rows())));
}

TEST(Dispatch, SeveralThreadsShareAModel) {
  const auto expected_model = block_model();
  const at::Tensor expected = forward(*expected_model, rows());
  const WeightFolder folder(*expected_model);
  DispatchSettings converted = small_blocks();
  converted.dtype = Dtype::kFloat64;
  const auto mapped = empty_block_model(), on_disk = empty_block_model(), wide = empty_block_model();
  load_checkpoint_in_model(*mapped, folder.weights(), nullptr, {});
  load_checkpoint_and_dispatch(*on_disk, folder.weights(), &kOnDisk, small_blocks());
  load_checkpoint_and_dispatch(*wide, folder.weights(), &kOnDisk, converted);
  expected_model->to(at::kDouble, std::nullopt);
  const at::Tensor wide_expected = forward(*expected_model, rows().to(at::kDouble));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; thread++)
    threads.emplace_back([&] {
      for (int pass = 0; pass < 50; pass++) {
        EXPECT_TRUE(at::equal(forward(*mapped, rows()), expected));
        EXPECT_TRUE(at::equal(forward(*on_disk, rows()), expected));
        EXPECT_TRUE(at::equal(forward(*wide, rows().to(at::kDouble)), wide_expected));
      }
    });
  for (std::thread& thread : threads) thread.join();
  expect_meta(*on_disk);
}

TEST(Dispatch, WrongWeightsChangeNothing) {
  const auto model = block_model();
  const WeightFolder folder(*model);
  nn::NamedTensors weights = folder.weights();
  const auto untouched = [&](const char* part, Status status, const nn::NamedTensors& given,
                             const DispatchSettings& settings = {}) {
    const auto empty = empty_block_model();
    expect_error(status, part, [&] { load_checkpoint_and_dispatch(*empty, given, &kOnDisk, settings); });
    expect_meta(*empty);
    EXPECT_EQ(Dispatch::of(*empty), nullptr);
  };
  nn::NamedTensors missing(weights.begin() + 1, weights.end());
  untouched(weights[0].first.c_str(), Status::kNotFound, missing);
  nn::NamedTensors misfit = weights;
  misfit[0].second = at::ones({2, 3});
  untouched("weights of another shape: '", Status::kShapeMismatch, misfit);
  nn::NamedTensors extra = weights;
  extra.emplace_back("layers.9.scale", at::ones({16}));
  DispatchSettings strict;
  strict.strict = true;
  untouched("'layers.9.scale', which the model lacks", Status::kNotFound, extra, strict);
  const auto loose = empty_block_model();
  EXPECT_EQ(load_checkpoint_and_dispatch(*loose, extra, &kOnDisk, {}).unexpected,
            std::vector<std::string>{"layers.9.scale"});
}

TEST(Dispatch, WrongMapsAreErrors) {
  const auto model = block_model();
  const auto refused = [&](Status status, const char* part, const DeviceMap& map) {
    expect_error(status, part, [&] { dispatch_model(*model, map, {}, {}); });
  };
  refused(Status::kInvalidArgument, "no place for 'layers.1.scale'",
          {{"layers.0", "cpu"}, {"layers.2", "disk"}, {"layers.3", "cpu"}});
  refused(Status::kNotFound, "'layers.7'", {{"", "cpu"}, {"layers.7", "disk"}});
  refused(Status::kInvalidArgument, "lake", {{"", "lake"}});
  refused(Status::kUnsupported, "accelerator", {{"", "0"}});
  const WeightFolder folder;
  dispatch_model(*model, kOnDisk, {}, with_folder(folder));
  refused(Status::kInvalidState, "is dispatched already", kOnDisk);
  expect_error(Status::kInvalidState, "has offloaded weights", [&] { model->to(at::kDouble, std::nullopt); });
}

TEST(Dispatch, TheEndBringsWeightsBack) {
  const auto model = block_model();
  const at::Tensor expected = forward(*model, rows());
  const WeightFolder folder;
  dispatch_model(*model, kOnDisk, {}, with_folder(folder, small_blocks()));
  expect_meta(*model);
  const auto dispatch = Dispatch::of(*model);
  dispatch->remove(*model->find("layers.1"));
  EXPECT_FALSE(nn::find_tensor(*model, "layers.1.scale").is_meta());
  EXPECT_TRUE(nn::find_tensor(*model, "layers.1.in.weight").is_meta());
  EXPECT_TRUE(at::equal(forward(*model, rows()), expected));
  for (const auto& [path, module] : nn::named_modules(*model)) dispatch->remove(*model->find(path));
  for (const auto& [name, parameter] : nn::named_parameters(*model)) EXPECT_FALSE(parameter.is_meta()) << name;
  EXPECT_EQ(Dispatch::of(*model), nullptr);
  EXPECT_TRUE(at::equal(forward(*model, rows()), expected));
  dispatch_model(*model, kOnDisk, {}, with_folder(folder));  // once more
  EXPECT_TRUE(at::equal(forward(*model, rows()), expected));
}

TEST(Dispatch, TheStateDictHasTheValues) {
  const auto model = block_model();
  const WeightFolder folder(*model);
  const auto empty = empty_block_model();
  DispatchSettings settings;
  settings.dtype = Dtype::kFloat64;
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, settings);
  const nn::NamedTensors expected = model->state_dict(), found = empty->state_dict();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); i++) {
    EXPECT_EQ(found[i].second.scalar_type(), at::kDouble);
    EXPECT_TRUE(at::equal(found[i].second, expected[i].second.to(at::kDouble))) << found[i].first;
  }
  EXPECT_TRUE(at::equal(empty->find("layers.1")->state_dict()[0].second, found[5].second));
}

TEST(Dispatch, WeightsOfAModuleOutsideOfForwards) {
  const auto model = block_model();
  const WeightFolder folder(*model);
  const auto empty = empty_block_model();
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, {});
  const nn::ModulePtr block = empty->find("layers.1");
  EXPECT_TRUE(has_offloaded_parameters(*block));
  EXPECT_FALSE(has_offloaded_parameters(*empty));
  EXPECT_FALSE(is_on_several_devices(*empty)) << "the map has one entry";
  {
    AlignedModule aligned(block, std::nullopt);
    const at::Tensor scale = nn::find_tensor(*empty, "layers.1.scale");
    EXPECT_TRUE(at::equal(scale, nn::find_tensor(*model, "layers.1.scale")));
    EXPECT_TRUE(nn::find_tensor(*empty, "layers.1.in.weight").is_meta()) << "what is below is not";
    scale.detach().zero_();
    aligned.finish();
    EXPECT_TRUE(scale.is_meta());
  }
  EXPECT_TRUE(at::equal(forward(*empty, rows()), forward(*model, rows()))) << "changes are lost";
}

TEST(Dispatch, SeveralBatchesShareAPass) {
  const BlockModelShape shape{5, 32, 64};
  const auto model = block_model(shape);
  const WeightFolder folder(*model);
  const auto empty = empty_block_model(shape);
  DispatchSettings settings;
  settings.dtype = Dtype::kFloat64;
  settings.block_bytes = 2 * block_bytes(shape);
  settings.prefetch_bytes = 0;
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, settings);
  model->to(at::kDouble, std::nullopt);
  constexpr size_t kBatches = 7;
  std::vector<at::Tensor> inputs, outputs(kBatches);
  for (size_t i = 0; i < kBatches; i++)
    inputs.push_back(tests::pattern_tensor({static_cast<int64_t>(i) + 1, 32}, static_cast<int64_t>(i)).to(at::kDouble));
  std::vector<std::function<void()>> bodies;
  for (size_t i = 0; i < kBatches; i++)
    bodies.emplace_back([&, i] {
      EXPECT_FALSE(at::GradMode::is_enabled()) << "the settings of the caller hold";
      outputs[i] = empty->call(inputs[i]);
    });
  const at::NoGradGuard no_grad;
  BatchSchedule::run(bodies, c10::Device(c10::kCPU));
  for (size_t i = 0; i < kBatches; i++) EXPECT_TRUE(at::equal(outputs[i], forward(*model, inputs[i]))) << i;
  const auto statistics = Dispatch::of(*empty)->stream()->statistics();
  EXPECT_EQ(statistics.brought_bytes, 5 * 2 * block_bytes(shape)) << "each block once";
  EXPECT_LE(statistics.peak_bytes, 2 * 2 * block_bytes(shape) + 10 * 64);

  // One that fails does not stop the others.
  inputs[3] = rows(7).to(at::kDouble);
  outputs.assign(kBatches, {});
  EXPECT_ANY_THROW(BatchSchedule::run(bodies, c10::Device(c10::kCPU)));
  for (size_t i = 0; i < kBatches; i++) EXPECT_EQ(outputs[i].defined(), i != 3);
  expect_meta(*empty);
}

TEST(Dispatch, GradientsFlowThroughOffloadedWeights) {
  const auto run = [](nn::Module& model, nn::Module& adapter) {
    for (const auto& [name, parameter] : nn::named_parameters(model)) parameter.set_requires_grad(false);
    std::vector<at::Tensor> gradients;
    for (int step = 0; step < 3; step++) {
      for (const at::Tensor& parameter : adapter.parameters()) parameter.mutable_grad().reset();
      at::Tensor input = rows();
      input.set_requires_grad(true);
      adapter.call(model.call(adapter.call(input))).square().sum().backward();
      gradients.push_back(input.grad());
      for (const at::Tensor& parameter : adapter.parameters()) gradients.push_back(parameter.grad());
    }
    return gradients;
  };
  const auto model = block_model();
  const WeightFolder folder(*model);
  const auto adapter = [] { return block_model({1, 16, 8}); };
  const std::vector<at::Tensor> expected = run(*model, *adapter());
  for (const auto dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    const auto empty = empty_block_model();
    DispatchSettings settings = small_blocks();
    settings.dtype = dtype;
    load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, settings);
    if (dtype == Dtype::kFloat64) continue;
    const std::vector<at::Tensor> found = run(*empty, *adapter());
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); i++) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
    expect_meta(*empty);
  }
}

TEST(Dispatch, MemoryStaysConstant) {
  const BlockModelShape shape{4, 64, 128};
  const auto model = block_model(shape);
  const WeightFolder folder(*model);
  const auto empty = empty_block_model(shape);
  DispatchSettings settings;
  settings.dtype = Dtype::kBfloat16;
  settings.block_bytes = block_bytes(shape) / 2;
  load_checkpoint_and_dispatch(*empty, folder.weights(), &kOnDisk, settings);
  const at::Tensor input = rows(64).to(at::kBFloat16);
  const at::Tensor expected = forward(*empty, input);
  const auto anonymous = [] {
    std::ifstream status("/proc/self/status");
    std::string word;
    int64_t kib = 0;
    while (status >> word)
      if (word == "RssAnon:") status >> kib;
    return kib;
  };
  int64_t after_warm_up = 0;
  for (int pass = 0; pass < 500; pass++) {
    ASSERT_TRUE(at::equal(forward(*empty, input), expected));
    if (pass == 50) after_warm_up = anonymous();
  }
  EXPECT_TRUE(kIsSanitized || anonymous() <= after_warm_up + 1024) << anonymous() << " KiB after " << after_warm_up;
  EXPECT_LE(Dispatch::of(*empty)->stream()->statistics().peak_bytes, block_bytes(shape) + 20 * 64);
}

TEST(Dispatch, BlocksAreExpectedAsInThePassBefore) {
  nn::CallOrder order(4);
  EXPECT_EQ(order.upcoming(0), 0U);
  for (const size_t block : {2, 0, 2, 1}) order.use(block);  // 3 is not used, 2 twice
  EXPECT_EQ(order.upcoming(0), 2U) << "so far the order of registration";
  order.end_pass();
  EXPECT_EQ(order.pass_length(), 4U);
  EXPECT_EQ(order.upcoming(0), 2U);
  order.use(2);
  order.use(0);
  EXPECT_EQ(order.upcoming(0), 2U);
  EXPECT_EQ(order.upcoming(1), 1U);
  order.use(3);  // unknown so far
  EXPECT_EQ(order.upcoming(0), 2U) << "nothing known changes";
}

TEST(Dispatch, LayersKeepASmallDtype) {
  const auto model = block_model();
  attach_layerwise_casting(*model, {at::kFloat8_e4m3fn, at::kFloat, {"layers\\.1"}, {}});
  EXPECT_EQ(nn::find_tensor(*model, "layers.0.in.weight").scalar_type(), at::kFloat8_e4m3fn);
  EXPECT_EQ(nn::find_tensor(*model, "layers.1.in.weight").scalar_type(), at::kFloat) << "skipped by its name";
  EXPECT_EQ(nn::find_tensor(*model, "layers.0.scale").scalar_type(), at::kFloat) << "no linear layer";
  const auto expected = block_model();
  for (const auto& [name, parameter] : nn::named_parameters(*expected))
    if (name.find("layers.1") == std::string::npos && name.find("scale") == std::string::npos)
      parameter.detach().copy_(parameter.detach().to(at::kFloat8_e4m3fn).to(at::kFloat));
  for (int pass = 0; pass < 2; pass++) EXPECT_TRUE(at::equal(forward(*model, rows()), forward(*expected, rows())));
  EXPECT_EQ(nn::find_tensor(*model, "layers.0.in.weight").scalar_type(), at::kFloat8_e4m3fn);
  expect_error(Status::kInvalidArgument, "not a regular expression", [&] {
    attach_layerwise_casting(*model, {at::kHalf, at::kFloat, {"("}, {}});
  });
  expect_error(Status::kInvalidArgument, "storage_dtype is int32", [&] {
    attach_layerwise_casting(*model, {at::kInt, at::kFloat, {}, {}});
  });
}

// Names of the layers that are cast.
std::vector<std::string> cast_layers(const std::vector<std::string>& patterns,
                                     const std::vector<std::string>& classes) {
  const auto model = block_model({2, 16, 32});
  attach_layerwise_casting(*model, {at::kHalf, at::kFloat, patterns, classes});
  std::vector<std::string> names;
  for (const char* const name : {"layers.0.in", "layers.0.out", "layers.1.in", "layers.1.out"})
    if (nn::find_tensor(*model, std::string(name) + ".weight").scalar_type() == at::kHalf) names.emplace_back(name);
  EXPECT_TRUE(at::isfinite(forward(*model, rows())).all().item<bool>());
  return names;
}

// Regression: classes and anchored patterns that layer-wise casting leaves out did not hold for what is inside.
TEST(Dispatch, ASkippedModuleTakesAllBelowItAlong) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(cast_layers({}, {"Block"}), Names());
  EXPECT_EQ(cast_layers({}, {"ModuleList"}), Names());
  EXPECT_EQ(cast_layers({}, {"Model"}), Names());
  EXPECT_EQ(cast_layers({}, {"Linear"}), Names());
  EXPECT_EQ(cast_layers({"^layers.1$"}, {}), Names({"layers.0.in", "layers.0.out"}));
  EXPECT_EQ(cast_layers({"\\.0$"}, {}), Names({"layers.1.in", "layers.1.out"}));
  EXPECT_EQ(cast_layers({"^layers$"}, {}), Names());
  EXPECT_EQ(cast_layers({"^$"}, {}), Names()) << "the name of the model";
  EXPECT_EQ(cast_layers({"^in$"}, {}).size(), 4U) << "a whole name, and none is so";
  EXPECT_EQ(cast_layers({"in$"}, {"Norm"}), Names({"layers.0.out", "layers.1.out"}));

  // A layer that is elsewhere, too.
  const auto model = block_model({2, 16, 32});
  model->add_child("shared", model->find("layers.0.in"));
  attach_layerwise_casting(*model, {at::kHalf, at::kFloat, {}, {"Block"}});
  EXPECT_EQ(nn::find_tensor(*model, "shared.weight").scalar_type(), at::kHalf);
  EXPECT_EQ(nn::find_tensor(*model, "layers.0.out.weight").scalar_type(), at::kFloat);
}

// Regression: `keep_in_fp32_modules` "wo" kept `word_embeddings`, and any other name with these letters.
TEST(Dispatch, ModulesThatAreKeptInFloat32) {
  const auto model = block_model({2, 16, 32});
  const WeightFolder folder(*model);
  const auto kept = [&folder](const char* modules) {
    const auto empty = empty_block_model({2, 16, 32});
    DispatchSettings settings;
    settings.dtype = Dtype::kFloat16;
    settings.keep_in_fp32_modules = std::string(modules);
    load_checkpoint_in_model(*empty, folder.weights(), nullptr, settings);
    std::string names;
    for (const auto& [name, parameter] : nn::named_parameters(*empty))
      if (parameter.scalar_type() == at::kFloat) names += name + " ";
    return names;
  };
  EXPECT_EQ(kept(""), "");
  EXPECT_EQ(kept("la"), "") << "a part of 'layers' and of 'scale'";
  EXPECT_EQ(kept("o,i,layer,weight.,sca"), "");
  EXPECT_EQ(kept("ut"), kept("out")) << "the end of a path, as in Accelerate";
  EXPECT_EQ(kept("out"), "layers.0.out.weight layers.0.out.bias layers.1.out.weight layers.1.out.bias ");
  EXPECT_EQ(kept("layers.1,no"),
            "layers.1.scale layers.1.in.weight layers.1.in.bias layers.1.out.weight layers.1.out.bias ");
  EXPECT_EQ(kept("layers.0.in.bias,1.in"), "layers.0.in.bias layers.1.in.weight layers.1.in.bias ");
}

// Regression: integers of a checkpoint were cast to `dtype`.
TEST(Dispatch, IntegersOfACheckpointKeepTheirDtype) {
  const auto model = std::make_shared<nn::CallbackModule>("Model");
  model->add_parameter("weight", at::zeros({2}));
  model->add_buffer("codes", at::zeros({2}));
  const nn::NamedTensors weights = {{"weight", at::ones({2}, at::kChar)}, {"codes", at::ones({2}, at::kChar)}};
  DispatchSettings settings;
  settings.dtype = Dtype::kFloat16;
  load_checkpoint_in_model(*model, weights, nullptr, settings);
  EXPECT_EQ(nn::find_tensor(*model, "weight").scalar_type(), at::kHalf) << "it gets gradients";
  EXPECT_EQ(nn::find_tensor(*model, "codes").scalar_type(), at::kChar);
  load_checkpoint_in_model(*model, {{"codes", at::ones({2}, at::kFloat)}}, nullptr, {});
  EXPECT_EQ(nn::find_tensor(*model, "codes").scalar_type(), at::kChar) << "without a dtype that of the model";
}

TEST(Dispatch, SingleTensorsAreSet) {
  const auto empty = empty_block_model();
  const at::Tensor scale = nn::find_tensor(*empty, "layers.0.scale"), values = at::ones({16}, at::kDouble);
  expect_error(Status::kInvalidArgument, "is a meta tensor",
               [&] { set_module_tensor(*empty, "layers.0.scale", c10::kCPU, {}, {}); });
  expect_error(Status::kShapeMismatch, "[3]",
               [&] { set_module_tensor(*empty, "layers.0.scale", c10::kCPU, at::ones({3}), {}); });
  expect_error(Status::kNotFound, "layers.0.scales",
               [&] { set_module_tensor(*empty, "layers.0.scales", c10::kCPU, values, {}); });
  set_module_tensor(*empty, "layers.0.scale", c10::kCPU, values, {});
  EXPECT_EQ(scale.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(scale, values.to(at::kFloat)));
  set_module_tensor(*empty, "layers.0.scale", c10::kCPU, values, at::kBFloat16);
  EXPECT_EQ(scale.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(is_below_any("a.1.weight", {"b", "a.1"}));
  EXPECT_FALSE(is_below_any("a.10.weight", {"a.1"}));
}

TEST(Dispatch, AnIndexThatDoesNotFitIsAnError) {
  const WeightFolder folder;
  offload_state_dict(folder.path(), {{"a", at::ones({2, 3})}, {"number", at::ones({}, at::kBFloat16)}});
  const nn::NamedTensors opened = open_offload_folder(folder.path());
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_TRUE(at::equal(opened[0].second, at::ones({2, 3})));
  EXPECT_EQ(opened[1].second.dim(), 0);
  EXPECT_EQ(opened[1].second.scalar_type(), at::kBFloat16);
  expect_error(Status::kInvalidArgument, "'../b'", [&] {
    offload_state_dict(folder.path(), {{"../b", at::ones({1})}});
  });
  const auto refused = [&](const std::string& index, Status status, const char* part) {
    std::ofstream(folder.file("index.json")) << index;
    expect_error(status, part, [&] { open_offload_folder(folder.path()); });
  };
  refused(R"({"a":{"dtype":"float32","shape":[2,4]}})", Status::kCorrupt, "has 24 bytes");
  refused(R"({"a":{"dtype":"float32","shape":[4611686018427387904,4,6]}})", Status::kCorrupt, "has 24 bytes");
  refused(R"({"a":{"dtype":"float33","shape":[2,3]}})", Status::kCorrupt, "float33");
  refused(R"({"a":{"dtype":"float32","shape":[-2,3]}})", Status::kCorrupt, "-2");
  refused(R"({"a":{"dtype":"float32"}})", Status::kCorrupt, "no shape");
  refused(R"({"../a":{"dtype":"float32","shape":[2,3]}})", Status::kInvalidArgument, "../a");
  refused(R"({"c":{"dtype":"float32","shape":[2,3]}})", Status::kNotFound, "c.dat");
  refused("[1]", Status::kCorrupt, "not a JSON object");
  refused("{", Status::kInvalidArgument, "index.json");
}

}  // namespace dispatch_test
}  // namespace accel::bigmodel
