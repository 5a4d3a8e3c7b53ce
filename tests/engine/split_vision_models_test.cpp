// SPDX-License-Identifier: Apache-2.0
// Models of images whose layers are split by their plans train as in one process, and one without a plan is refused.
#include <gtest/gtest.h>

#include <string>

#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "parallel/tensor/plan.hpp"
#include "split_model_fixture.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace split_vision_models_test {

using namespace split_model_tests;

at::Tensor images_like(const at::Tensor& tokens) {
  const auto options = at::TensorOptions().dtype(at::kDouble).device(tokens.device());
  const at::Tensor base = at::linspace(-1, 1, 3 * 8 * 8, options).view({1, 3, 8, 8});
  return (base * (tokens.sum(1).to(at::kDouble) + 1).view({-1, 1, 1, 1})).sin();
}

// The loss of a model that sees images of the tokens, and the tokens.
nn::ModulePtr with_images(const std::string& config, bool sees_tokens) {
  const auto model = std::make_shared<nn::CallbackModule>("Images");
  model->add_child("model", from_config(config));
  model->set_forward([sees_tokens](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor tokens = inputs[0].toTensor(), images = images_like(tokens);
    const nn::Inputs given = sees_tokens ? nn::Inputs{tokens, images} : nn::Inputs{images};
    const c10::IValue output = self.children()[0].second->call(given);
    if (output.isTensor()) return at::cross_entropy_loss(output.toTensor(), tokens.select(1, 0).remainder(3));
    std::vector<c10::IValue> parts = tree::sequence_items(output).vec();
    // The logits of an image and another rank's text are nowhere: those of each pair count.
    if (sees_tokens) parts = {parts[0].toTensor().diagonal(), parts[2], parts[3]};
    at::Tensor loss;
    for (const c10::IValue& part : parts) {
      const at::Tensor mean = part.toTensor().square().mean() + part.toTensor().sin().mean();
      loss = loss.defined() ? loss + mean : mean;
    }
    return loss;
  });
  return model;
}

constexpr const char* kSizes = R"("hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 31)";

std::string vision_config(const std::string& more) {
  return text("{", kSizes, R"(, "image_size": 8, "patch_size": 4)", more, "}");
}

Case case_of(const char* name, const std::string& config, bool sees_tokens) {
  Case test{name, [=] { return with_images(config, sees_tokens); }, "auto", kFloatTolerance};
  test.returns_loss = true;
  return test;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      case_of("ViT", vision_config(R"(, "model_type": "vit", "architectures": ["ViTForImageClassification"],
                               "num_labels": 3)"),
              false),
      case_of("CLIP",
              text(R"({"model_type": "clip", "projection_dim": 7, "vision_config": )", vision_config(""),
                   R"(, "text_config": {)", kSizes, R"(, "vocab_size": 13, "eos_token_id": 5}})"),
              true),
      case_of("CLIP, images", vision_config(R"(, "model_type": "clip_vision_model")"), false),
  };
  return all;
}

TEST(SplitVisionModels, TrainAsOneProcess) {
  constexpr int kSteps = 4;
  for (const Case& test : cases()) {
    const Trained expected = train_alone(test, kSteps);
    for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, MeshSizes{1, 1, 3}, MeshSizes{1, 2, 1}, MeshSizes{1, 2, 2}})
      expect_trains_as(expected, test, sizes);
  }
}

TEST(SplitVisionModels, HaveAllTheirProjectionsSplit) {
  const nn::ModulePtr model = nn::module_from_config(vision_config(R"(, "model_type": "vit")"));
  EXPECT_EQ(plan_of(*model, false).size(), 2 * 6);
  const nn::ModulePtr text =
      nn::module_from_config(vision_config(R"(, "model_type": "clip_text_model", "vocab_size": 13)"));
  EXPECT_EQ(plan_of(*text, false).size(), 2 * 6);
  tests::expect_error(Status::kUnsupported, "splits no sequences", [&] { plan_of(*model, true); });
  const nn::ModulePtr resnet =
      nn::module_from_config(R"({"model_type": "resnet", "hidden_sizes": [8], "depths": [1]})");
  tests::expect_error(Status::kUnsupported, "no plan that splits a model of kind 'ResNetModel'",
                      [&] { plan_of(*resnet, false); });
}

}  // namespace split_vision_models_test
}  // namespace accel::parallel
