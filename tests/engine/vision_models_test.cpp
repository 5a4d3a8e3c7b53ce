// SPDX-License-Identifier: Apache-2.0
// ViT, CLIP and ResNet against transformers: outputs, losses, gradients, and the names in files.
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "bigmodel/load_and_dispatch.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/creation_device.hpp"
#include "nn/module_chain.hpp"
#include "nn/module_walks.hpp"
#include "nn/recompute/activation_checkpointing.hpp"
#include "report/temporary_folder.hpp"
#include "vision_fixture.hpp"

namespace accel::nn {
namespace vision_models_test {

using tests::expect_error;
using tests::for_each_vision_case;
using tests::vision_inputs;
using tests::vision_outputs;

TEST(VisionModels, GiveTheOutputsAndGradientsOfTheReference) {
  for_each_vision_case([](const Json& recorded, const ModulePtr& model) {
    const std::vector<at::Tensor> outputs = vision_outputs(model->call(vision_inputs(*model, recorded)), recorded);
    const Json::Items &expected = *json_member(recorded, "outputs")->items(),
                      &shapes = *json_member(recorded, "shapes")->items();
    ASSERT_EQ(outputs.size(), expected.size());
    for (size_t i = 0; i < outputs.size(); i++) {
      EXPECT_EQ(outputs[i].sizes().vec(), tests::integers(shapes[i]));
      tests::expect_part_close(outputs[i], tests::tensor_of(expected[i]), 1e-5);
    }
    const at::Tensor loss = tests::vision_loss(outputs);
    const double expected_loss = json_number(recorded, "loss", 0);
    EXPECT_NEAR(loss.item<double>(), expected_loss, 2e-5 * std::max(1.0, std::abs(expected_loss)));
    loss.backward();
    tests::expect_vision_gradients(*model, recorded);
    if (const Json* const buffers = json_member(recorded, "buffers"))
      for (const auto& [name, tensor] : named_buffers(*model))
        tests::expect_close(tensor, tests::tensor_of(*json_member(*buffers, name)), 1e-5);
  });
}

TEST(VisionModels, AreCloseInBfloat16) {
  for_each_vision_case([](const Json& recorded, const ModulePtr& model) {
    model->to(at::kBFloat16, std::nullopt);
    Inputs inputs = vision_inputs(*model, recorded);
    for (c10::IValue& input : inputs)
      if (input.isTensor() && input.toTensor().is_floating_point()) input = input.toTensor().to(at::kBFloat16);
    const std::vector<at::Tensor> outputs = vision_outputs(model->call(inputs), recorded);
    const Json::Items& expected = *json_member(recorded, "bfloat16")->items();
    for (size_t i = 0; i < outputs.size(); i++) {
      const at::Tensor numbers = tests::tensor_of(expected[i]);
      // Eight bits of the largest value, and what some sums differ by.
      tests::expect_close(outputs[i], numbers, 0.02 * numbers.abs().max().item<double>());
    }
    tests::vision_loss(outputs).backward();
    const Json& norms = *json_member(recorded, "bfloat16_gradients");
    double largest = 0;
    for (const auto& [name, norm] : *norms.members()) largest = std::max(largest, norm.number().value());
    for (const auto& [name, tensor] : tests::parameters_in_files(*model))
      if (tensor.grad().defined()) {
        const double expected_norm = json_number(norms, name.c_str(), 0);
        EXPECT_NEAR(tensor.grad().to(at::kFloat).norm().item<double>(), expected_norm,
                    0.02 * std::max(expected_norm, 0.05 * largest))
            << name;
      }
  });
}

TEST(VisionModels, FilesHaveTheNamesOfTheReference) {
  const tests::TemporaryFolder folder;
  int number = 0;
  for_each_vision_case([&](const Json& recorded, const ModulePtr& model) {
    std::map<std::string, std::vector<int64_t>> expected, found;
    for (const Json& entry : *json_member(recorded, "files")->items())
      expected[*(*entry.items())[0].text()] = tests::integers((*entry.items())[1]);
    const NamedTensors files = HubNames(*model).to_files(model->state_dict());
    for (const auto& [name, tensor] : files) found[name] = tensor.sizes().vec();
    EXPECT_EQ(found, expected);
    const std::string path = folder.path(text("model", number++));
    checkpoint::save_model(path, files);
    // A model without memory gets it from the files.
    ModulePtr other;
    {
      const CreationDevice without_memory(c10::Device(c10::kMeta), /*include_buffers=*/true);
      other = module_from_config(print_json(*json_member(recorded, "config")));
    }
    for (const auto& [name, tensor] : other->state_dict()) EXPECT_TRUE(tensor.is_meta()) << name;
    DispatchSettings settings;
    settings.strict = true;
    const LoadReport report =
        bigmodel::load_checkpoint_in_model(*other, checkpoint::load_state_dict(path), nullptr, settings);
    EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
    other->train(model->is_training());
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> outputs = vision_outputs(model->call(vision_inputs(*model, recorded)), recorded),
                                  loaded = vision_outputs(other->call(vision_inputs(*other, recorded)), recorded);
    for (size_t i = 0; i < outputs.size(); i++) EXPECT_TRUE(at::equal(outputs[i], loaded[i]));
  });
}

TEST(VisionModels, AreChainsOfParts) {
  const at::NoGradGuard no_grad;
  for_each_vision_case([](const Json& recorded, const ModulePtr& model) {
    if (model->kind() == "CLIPModel") {  // its towers have inputs of their own
      EXPECT_TRUE(model->chain().empty());
      return;
    }
    model->train(false);
    const Inputs inputs = vision_inputs(*model, recorded);
    const ModuleChain chain = model->chain();
    ASSERT_GE(chain.size(), 3);
    c10::IValue passed = c10::ivalue::Tuple::create(inputs);
    std::set<std::string> owned;
    for (const ModulePart& part : chain) {
      for (const std::string& path : part.modules) {
        EXPECT_NE(model->find(path), nullptr) << path;
        EXPECT_TRUE(owned.insert(path).second) << path;
      }
      passed = part.call(passed);
    }
    for (const auto& [name, tensor] : named_parameters(*model)) {
      bool has_owner = false;
      for (const std::string& path : owned) has_owner |= name.compare(0, path.size() + 1, path + ".") == 0;
      EXPECT_TRUE(has_owner) << name;
    }
    const std::vector<at::Tensor> whole = vision_outputs(model->call(inputs), recorded),
                                  parts = vision_outputs(passed, recorded);
    ASSERT_EQ(whole.size(), parts.size());
    for (size_t i = 0; i < whole.size(); i++) EXPECT_TRUE(at::equal(whole[i], parts[i]));
  });
}

TEST(VisionModels, RecomputeTheirActivations) {
  const std::map<std::string, std::string> blocks = {{"vit", "ViTLayer"},
                                                     {"clip", "CLIPEncoderLayer"},
                                                     {"clip_text_model", "CLIPEncoderLayer"},
                                                     {"clip_vision_model", "CLIPEncoderLayer"},
                                                     {"resnet", "ResNetConvLayer"}};
  for_each_vision_case([&](const Json& recorded, const ModulePtr& model) {
    const auto classes = blocks.find(json_text(*json_member(recorded, "config"), "model_type", ""));
    ASSERT_NE(classes, blocks.end());
    ActivationCheckpointingSettings settings;
    settings.class_names = classes->second;
    checkpoint_activations(*model, settings);
    tests::vision_loss(vision_outputs(model->call(vision_inputs(*model, recorded)), recorded)).backward();
    tests::expect_vision_gradients(*model, recorded);
  });
}

// The first member of a name counts.
ModulePtr tiny(const char* type, const std::string& settings = "") {
  return module_from_config(text(R"({"model_type": ")", type, "\"", settings,
                                 R"(, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                                 "intermediate_size": 4, "image_size": 8, "patch_size": 4})"));
}

void expect_incomplete_files_refused(Module& model) {
  NamedTensors files = HubNames(model).to_files(model.state_dict());
  const std::string lost = model.state_dict().back().first;
  files.pop_back();
  DispatchSettings settings;
  settings.strict = true;
  expect_error(Status::kNotFound, lost, [&] { bigmodel::load_checkpoint_in_model(model, files, nullptr, settings); });
}

TEST(VisionModels, VitHasDropoutsAndAnOptionalPooler) {
  const ModulePtr model = tiny("vit", R"(, "hidden_dropout_prob": 0.5, "add_pooling_layer": false)");
  const at::Tensor images = at::ones({1, 3, 8, 8});
  EXPECT_FALSE(at::equal(model->call(images), model->call(images)));
  model->train(false);
  EXPECT_TRUE(at::equal(model->call(images), model->call(images)));
}

TEST(VisionModels, VitRefusesWhatItCannotDo) {
  const auto refuse = [](Status status, const char* message, const char* settings) {
    expect_error(status, message, [&] { tiny("vit", settings); });
  };
  refuse(Status::kInvalidArgument, "hidden_size 8 is not divisible by num_attention_heads 3",
         R"(, "hidden_size": 8, "num_attention_heads": 3)");
  refuse(Status::kInvalidArgument, "expected patches that fit", R"(, "patch_size": 9)");
  refuse(Status::kInvalidArgument, "image_size is [8]; expected a whole number, or [height, width]",
         R"(, "image_size": [8])");
  refuse(Status::kInvalidArgument, "image_size is 99999999; expected 1 to 65536", R"(, "image_size": 99999999)");
  refuse(Status::kInvalidArgument, "patch_size is 0", R"(, "patch_size": [4, 0])");
  refuse(Status::kInvalidArgument, "num_channels", R"(, "num_channels": 0)");
  refuse(Status::kUnsupported, "hidden_act 'none'", R"(, "hidden_act": "none")");
  refuse(Status::kUnsupported, "pooler_act 'none'", R"(, "pooler_act": "none")");
  refuse(Status::kInvalidArgument, "hidden_dropout_prob", R"(, "hidden_dropout_prob": 2)");
  refuse(Status::kUnsupported,
         R"(architectures is ["ViTForMaskedImageModeling"]; expected one of ViTModel, )"
         "ViTForImageClassification",
         R"(, "architectures": ["ViTForMaskedImageModeling"])");
  refuse(Status::kInvalidArgument, "num_labels is 3 and id2label has 2 names",
         R"(, "architectures": ["ViTForImageClassification"], "num_labels": 3, "id2label": {"0": "a", "1": "b"})");
  refuse(Status::kUnsupported, "quantization_config", R"(, "quantization_config": {"bits": 4})");
  const ModulePtr model = tiny("vit");
  expect_error(Status::kShapeMismatch, "expected images [batch, 3, 8, 8]: resize or crop them", [&] {
    model->call(Inputs{at::ones({1, 3, 8, 9})});
  });
  expect_error(Status::kShapeMismatch, "was called with the shape [1, 1, 8, 8]", [&] {
    model->call(Inputs{at::ones({1, 1, 8, 8})});
  });
  expect_error(Status::kShapeMismatch, "was called with the shape [3, 8, 8]", [&] {
    model->call(Inputs{at::ones({3, 8, 8})});
  });
  expect_error(Status::kTypeMismatch, "interpolate_pos_encoding of a module of kind 'ViTEmbeddings'", [&] {
    model->call(Inputs{at::ones({1, 3, 8, 8}), 1});
  });
  expect_error(Status::kShapeMismatch, "expected images with patches of 4 x 4", [&] {
    model->call(Inputs{at::ones({1, 3, 8, 3}), true});
  });
  expect_incomplete_files_refused(*model);
}

// Where the configuration's images are no squares, transformers takes the positions for those of a square.
TEST(VisionModels, PositionsOfAnyPictureAreResized) {
  const ModulePtr model = tiny("vit", R"(, "image_size": [8, 12], "add_pooling_layer": false)");
  model->train(false);
  const at::Tensor images = at::ones({1, 3, 8, 12});
  EXPECT_TRUE(at::equal(model->call(Inputs{images, true}).toTensor(), model->call(Inputs{images}).toTensor()));
  const at::Tensor wide = at::ones({1, 3, 8, 24});
  EXPECT_EQ(model->call(Inputs{wide, true}).toTensor().sizes(), at::IntArrayRef({1, 1 + 2 * 6, 8}));
}

TEST(VisionModels, ClipRefusesWhatItCannotDo) {
  const auto refuse = [](Status status, const char* message, const char* type, const char* settings) {
    expect_error(status, message, [&] { tiny(type, settings); });
  };
  refuse(Status::kUnsupported, "eos_token_id is [1,2]; expected one token", "clip_text_model",
         R"(, "eos_token_id": [1, 2])");
  refuse(Status::kUnsupported, "eos_token_id is null", "clip_text_model", R"(, "eos_token_id": null)");
  refuse(Status::kUnsupported, "expected one of CLIPTextModel, CLIPTextModelWithProjection", "clip_text_model",
         R"(, "architectures": ["CLIPVisionModel"])");
  refuse(Status::kInvalidArgument, "initializer_factor is -1", "clip_vision_model", R"(, "initializer_factor": -1)");
  refuse(Status::kInvalidArgument, "num_labels is 0", "clip",
         R"(, "architectures": ["CLIPForImageClassification"], "num_labels": 0)");
  refuse(Status::kTypeMismatch, "text_config is 3; expected an object", "clip", R"(, "text_config": 3)");
  refuse(Status::kInvalidArgument, "projection_dim", "clip_vision_model",
         R"(, "architectures": ["CLIPVisionModelWithProjection"], "projection_dim": 0)");
  refuse(Status::kUnsupported, "quantization_config", "clip",
         R"(, "vision_config": {"quantization_config": {"bits": 4}})");
  const ModulePtr text = tiny("clip_text_model", R"(, "vocab_size": 9, "max_position_embeddings": 4)");
  const at::Tensor tokens = at::ones({2, 5}, at::kLong), short_tokens = tokens.slice(1, 0, 3);
  expect_error(Status::kShapeMismatch, "5 positions; expected at most max_position_embeddings = 4",
               [&] { text->call(Inputs{tokens}); });
  expect_error(Status::kShapeMismatch, "attention_mask is of shape [2, 2]", [&] {
    text->call(Inputs{short_tokens, short_tokens.slice(1, 1)});
  });
  expect_error(Status::kShapeMismatch, "expected images [batch, 3, 8, 8]", [] {
    tiny("clip_vision_model")->call(Inputs{at::ones({1, 3, 4, 8})});
  });
  expect_incomplete_files_refused(*text);
}

ModulePtr tiny_clip() {
  return module_from_config(R"({"model_type": "clip", "projection_dim": 6,
      "text_config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 4,
                      "vocab_size": 9},
      "vision_config": {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4,
                        "image_size": 8, "patch_size": 4}})");
}

TEST(VisionModels, ClipComparesAnyNumbersOfTextsAndImages) {
  const ModulePtr model = tiny_clip();
  model->train(false);
  const at::Tensor texts = at::ones({3, 4}, at::kLong), images = at::ones({2, 3, 8, 8});
  const std::vector<at::Tensor> outputs = vision_outputs(model->call(Inputs{texts, images}), Json());
  ASSERT_EQ(outputs.size(), 4);
  EXPECT_EQ(outputs[0].sizes(), at::IntArrayRef({2, 3}));
  EXPECT_TRUE(at::equal(outputs[0], outputs[1].t()));
  EXPECT_EQ(outputs[2].sizes(), at::IntArrayRef({3, 6}));
  expect_error(Status::kShapeMismatch, "return_loss is true, with 3 texts and 2 images", [&] {
    model->call(Inputs{texts, images, {}, {}, true});
  });
  expect_error(Status::kTypeMismatch, "return_loss", [&] { model->call(Inputs{texts, images, {}, {}, 1}); });
  expect_error(Status::kTypeMismatch, "input 1", [&] { model->call(Inputs{texts}); });
}

// Early configurations have 2 as the end, which is then the largest token; otherwise the first end of a text counts.
TEST(VisionModels, ClipPoolsTheEndOfATextAlone) {
  const at::Tensor tokens = tests::tokens_of(parse_json("[[3, 5, 8, 4], [8, 5, 3, 5]]", ""));
  const std::map<std::string, std::vector<int64_t>> ends = {{"2", {2, 0}}, {"5", {1, 1}}, {"7", {0, 0}}};
  for (const auto& [end, places] : ends) {
    const ModulePtr model = tiny("clip_text_model", R"(, "vocab_size": 9, "eos_token_id": )" + end);
    const std::vector<at::Tensor> outputs = vision_outputs(model->call(Inputs{tokens}), Json());
    for (int64_t row = 0; row < 2; row++)
      EXPECT_TRUE(at::equal(outputs[1][row], outputs[0][row][places[static_cast<size_t>(row)]])) << end;
  }
}

// The one that counts is that in "..._config_dict", where an old configuration has both.
TEST(VisionModels, ClipReadsOldConfigurations) {
  const ModulePtr model = module_from_config(
      R"({"model_type": "clip", "architectures": ["CLIPTextModel"], "text_config": {"hidden_size": 16},
          "text_config_dict": {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 4, "vocab_size": 9}})");
  EXPECT_EQ(find_tensor(*model, "final_layer_norm.weight").size(0), 8);
}

TEST(VisionModels, ResNetRefusesWhatItCannotDo) {
  const auto refuse = [](Status status, const char* message, const char* settings) {
    expect_error(status, message, [&] { tiny("resnet", settings); });
  };
  refuse(Status::kInvalidArgument, "hidden_sizes has 2 numbers and depths 1",
         R"(, "hidden_sizes": [4, 8], "depths": [1])");
  refuse(Status::kTypeMismatch, "depths is 3; expected a list", R"(, "depths": 3)");
  refuse(Status::kTypeMismatch, "depths has \"a\"", R"(, "depths": ["a"])");
  refuse(Status::kInvalidArgument, "hidden_sizes is 0", R"(, "hidden_sizes": [0])");
  refuse(Status::kInvalidArgument, "hidden_sizes has 3, of which a bottleneck has a part",
         R"(, "hidden_sizes": [3], "depths": [1])");
  refuse(Status::kUnsupported, "layer_type is 'wide'", R"(, "layer_type": "wide")");
  const ModulePtr model =
      tiny("resnet", R"(, "layer_type": "basic", "embedding_size": 4, "hidden_sizes": [4], "depths": [1])");
  expect_error(Status::kShapeMismatch, "expected images [batch, 3, height, width]", [&] {
    model->call(Inputs{at::ones({2, 1, 8, 8})});
  });
  expect_error(Status::kShapeMismatch, "expected more than one value per feature", [&] {
    model->call(Inputs{at::ones({1, 3, 2, 2})});
  });
  expect_incomplete_files_refused(*model);
}

}  // namespace vision_models_test
}  // namespace accel::nn
