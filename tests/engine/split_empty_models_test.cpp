// SPDX-License-Identifier: Apache-2.0
// Models without memory whose layers are split: a rank gets its parts of their weights, from files or drawn.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "bigmodel/load_and_dispatch.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/choices/dtype.hpp"
#include "config/generated/settings/big_model/dispatch.hpp"
#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/creation_device.hpp"
#include "nn/initial_values.hpp"
#include "nn/layers/attention.hpp"
#include "nn/layers/normalization.hpp"
#include "split_model_fixture.hpp"

namespace accel::parallel {
namespace split_empty_models_test {

using namespace split_model_tests;

nn::ModulePtr empty(const std::function<nn::ModulePtr()>& make) {
  const nn::CreationDevice scope(c10::Device(at::kMeta), /*include_buffers=*/false);
  return make();
}

nn::ModulePtr empty_llama() {
  nn::ModulePtr model = empty([] { return nn::module_from_config(llama_config()); });
  model->to(at::kDouble, std::nullopt);
  return model;
}

std::map<std::string, at::Tensor> weights_of(const nn::Module& model) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& [name, tensor] : model.state_dict()) weights[name] = tensor;
  return weights;
}

Case case_of(const nn::ModulePtr& model) {
  return {"", [model] { return model; }, "auto", kFloatTolerance};
}

TEST(SplitEmptyModels, RanksReadTheirParts) {
  const checkpoint::tests::Folder folder;
  const auto expected = weights_of(*llama());
  checkpoint::save_model(folder / "m", llama()->state_dict());
  for (const bool maps : {false, true})
    for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, {1, 1, 3}, {2, 1, 2}, {1, 2, 2}}) {
      SCOPED_TRACE(text_of(sizes));
      on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
        const nn::ModulePtr model = empty_llama();
        accelerator->preparation().split_layers(model, {});
        const at::Tensor head = model->find("lm_head")->parameter(0);
        EXPECT_TRUE(head.is_meta());
        EXPECT_LT(head.size(0), kVocabulary);
        const nn::NamedTensors weights = checkpoint::load_state_dict(folder / "m");
        DispatchSettings settings;
        settings.map_weights = maps;
        const nn::LoadReport report = bigmodel::load_checkpoint_in_model(*model, weights, nullptr, settings);
        EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
        Training training(accelerator, case_of(model));
        expect_close(training.weights(), expected, 0);
        // Into the memory that the parts have then.
        training.step(0);
        EXPECT_FALSE(training.weights().at("lm_head.weight").equal(expected.at("lm_head.weight")));
        bigmodel::load_checkpoint_in_model(*model, checkpoint::load_state_dict(folder / "m"), nullptr, settings);
        expect_close(training.weights(), expected, 0);
        // In the dtype of that memory alone.
        settings.dtype = Dtype::kBfloat16;
        tests::expect_error(Status::kInvalidArgument, "dtype is bfloat16, and this rank's part of ",
                            [&] { bigmodel::load_checkpoint_in_model(*model, weights, nullptr, settings); });
      });
    }
}

TEST(SplitEmptyModels, WeightsMustFitTheWhole) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = empty_llama();
    accelerator->preparation().split_layers(model, {});
    const nn::NamedTensors part{{"lm_head.weight", at::empty({7, 24}, at::kDouble)}};
    tests::expect_error(Status::kShapeMismatch, "lm_head.weight [7, 24] instead of [13, 24]",
                        [&] { bigmodel::load_checkpoint_in_model(*model, part, nullptr, {}); });
    const bigmodel::DeviceMap map{{"", "cpu"}};
    const nn::NamedTensors whole{{"lm_head.weight", at::empty({13, 24}, at::kDouble)}};
    tests::expect_error(Status::kInvalidArgument, "and there is a device map",
                        [&] { bigmodel::load_checkpoint_in_model(*model, whole, &map, {}); });
  });
}

TEST(SplitEmptyModels, TheFirstRankMayHaveTheWeights) {
  const auto expected = weights_of(*llama());
  on_mesh({1, 1, 3}, [&](const AcceleratorPtr& accelerator) {
    const bool is_first = accelerator->state().process_index() == 0;
    expect_close(Training(accelerator, case_of(is_first ? llama() : empty_llama())).weights(), expected, 0);
  });
  on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
    const bool is_first = accelerator->state().process_index() == 0;
    tests::expect_error(Status::kCollectiveMismatch, "has no memory on rank 0 of those that share layers",
                        [&] { Training(accelerator, case_of(is_first ? empty_llama() : llama())); });
  });
}

TEST(SplitEmptyModels, InitialValuesAreThoseOfAWholeModel) {
  const std::function<nn::ModulePtr()> makers[] = {
      [] { return nn::module_from_config(llama_config()); },
      [] { return nn::module_from_config(llama_config(R"(, "dtype": "bfloat16", "tie_word_embeddings": true)")); },
      [] { return nn::module_from_config(R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 4})"); },
      [] { return std::make_shared<nn::SelfAttention>(8, 2, true, true, 0.0); },
      [] { return std::make_shared<nn::LayerNorm>(8, 1e-5); },
      [] { return std::make_shared<nn::BatchNorm>(8, 1e-5, 0.1); },
  };
  for (const auto& make : makers) {
    at::manual_seed(3);
    const auto expected = weights_of(*make());
    const nn::ModulePtr model = empty(make);
    EXPECT_TRUE(nn::lacks_memory(*model));
    at::Generator generator = at::detail::createCPUGenerator(3);
    nn::draw_initial_values(*model, generator);
    EXPECT_FALSE(nn::lacks_memory(*model));
    for (const auto& [name, tensor] : weights_of(*model)) EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
  }
}

TEST(SplitEmptyModels, ARankDrawsItsParts) {
  for (const int parts : {2, 3}) {
    at::manual_seed(5);
    const nn::ModulePtr whole = nn::module_from_config(llama_config());
    whole->to(at::kDouble, std::nullopt);
    at::manual_seed(5);
    on_mesh({1, 1, parts}, [&](const AcceleratorPtr& accelerator) {
      expect_close(Training(accelerator, case_of(empty_llama())).weights(), weights_of(*whole), 0);
    });
  }
}

TEST(SplitEmptyModels, TensorsOfTheProgramHaveNoInitialValues) {
  on_mesh({1, 1, 1}, [](const AcceleratorPtr& accelerator) {
    const auto model = std::make_shared<nn::CallbackModule>("Own");
    model->add_parameter("weight", at::empty({2}, at::TensorOptions().device(at::kMeta)), true);
    tests::expect_error(Status::kInvalidState, "'weight' has no memory, and no layer of the library says",
                        [&] { accelerator->preparation().prepare_model(model); });
  });
}

}  // namespace split_empty_models_test
}  // namespace accel::parallel
