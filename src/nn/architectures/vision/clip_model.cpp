// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/vision/clip_model.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/matmul.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/architectures/vision/clip_towers.hpp"
#include "nn/architectures/vision/image_embedding.hpp"
#include "nn/architectures/vision/tower.hpp"
#include "nn/layers/initial.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// One tower with the projection of its pooled states. Gives [projected, hidden states].
class ClipModelWithProjection final : public Module {
 public:
  ClipModelWithProjection(std::string kind, const Json& json, bool is_text)
      : Module(std::move(kind)),
        path_(is_text ? "text_model" : "vision_model"),
        projection_path_(is_text ? "text_projection" : "visual_projection") {
    const auto make = is_text ? clip_text_tower : clip_vision_tower;
    add_child(path_, tower_ = make(json, /*is_whole=*/false));
    projection_ = clip_projection(json, is_text, size_member(json, "projection_dim", kClipProjection));
    add_child(projection_path_, projection_);
  }
  std::vector<std::string> input_names() const override { return tower_->input_names(); }
  ModuleChain chain() override {
    return chain_with_head(tower_->chain(), path_, projection_path_,
                           [this](const c10::IValue& output) { return projected(output); });
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return projected(tower_->call(inputs)); }

 private:
  c10::IValue projected(const c10::IValue& output) {
    return tree::new_list({projection_->call(tower_pooled(output)), tower_states(output)});
  }

  std::string path_, projection_path_;
  ModulePtr tower_, projection_;
};

// The mean of the patches' states, as scores of classes.
class ClipForImageClassification final : public Module {
 public:
  ClipForImageClassification(const Json& json, const Json& vision) : Module("CLIPForImageClassification") {
    add_child("vision_model", tower_ = clip_vision_tower(vision, /*is_whole=*/false));
    add_child("classifier", classifier_ = clip_classifier(vision, number_of_classes(json)));
  }
  std::vector<std::string> input_names() const override { return tower_->input_names(); }
  ModuleChain chain() override {
    return chain_with_head(tower_->chain(), "vision_model", "classifier",
                           [this](const c10::IValue& output) { return scores_of(output); });
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return scores_of(tower_->call(inputs)); }

 private:
  c10::IValue scores_of(const c10::IValue& output) {
    return classifier_->call(tower_states(output).slice(1, 1).mean(1));
  }

  ModulePtr tower_, classifier_;
};

// Inputs: input_ids [texts, length], pixel_values [images, channels, height, width], attention_mask, position_ids, and
// the truth values return_loss and interpolate_pos_encoding. Gives [logits of each image [images, texts], logits of
// each text [texts, images], vectors of texts, vectors of images], with return_loss the contrastive loss in front of
// them: the n-th text belongs to the n-th image.
class ClipModel final : public Module, public SingleNumbers {
 public:
  ClipModel(const Json& json, const Json& text, const Json& vision) : Module("CLIPModel") {
    add_child("text_model", text_ = clip_text_tower(text, /*is_whole=*/false));
    add_child("vision_model", vision_ = clip_vision_tower(vision, /*is_whole=*/false));
    const int64_t size = size_member(json, "projection_dim", kClipProjection);
    add_child("visual_projection", vision_projection_ = clip_projection(vision, /*is_text=*/false, size));
    add_child("text_projection", text_projection_ = clip_projection(text, /*is_text=*/true, size));
    scale_ = add_parameter("logit_scale",
                           constant_parameter(json_number(json, "logit_scale_init_value", 2.6592), {1}, at::kFloat));
  }
  std::vector<std::string> input_names() const override {
    return {"input_ids", "pixel_values", "attention_mask", "position_ids", "return_loss", kInterpolates};
  }
  std::vector<std::string> single_numbers() const override { return {"logit_scale"}; }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const auto given = [&](size_t place) { return place < inputs.size() ? inputs[place] : c10::IValue(); };
    const at::Tensor images =
        unit(*vision_projection_, vision_->call(Inputs{tensor_input(inputs, 1, kind()), given(5)}));
    const at::Tensor texts =
        unit(*text_projection_, text_->call(Inputs{tensor_input(inputs, 0, kind()), given(2), given(3)}));
    const at::Tensor scores = at::matmul(texts, images.t()) * parameter(scale_).exp();
    std::vector<c10::IValue> results{scores.t(), scores, texts, images};
    if (flag_input(inputs, 4, "return_loss", kind())) results.insert(results.begin(), loss_of(scores));
    return tree::new_list(std::move(results));
  }

 private:
  static at::Tensor unit(Module& projection, const c10::IValue& output) {
    const at::Tensor vectors = projection.call(tower_pooled(output));
    return vectors / vectors.pow(2).sum(-1, /*keepdim=*/true).sqrt();
  }

  static at::Tensor loss_of(const at::Tensor& scores) {
    require(scores.size(0) == scores.size(1), Status::kShapeMismatch, "return_loss is true, with ", scores.size(0),
            " texts and ", scores.size(1), " images; expected a text for each image");
    const at::Tensor own = at::arange(scores.size(0), scores.options().dtype(at::kLong));
    return (at::cross_entropy_loss(scores, own) + at::cross_entropy_loss(scores.t(), own)) / 2.0;
  }

  size_t scale_ = 0;
  ModulePtr text_, vision_, text_projection_, vision_projection_;
};

// Old configurations have a complete second one of each tower, which counts.
Json tower_config(const Json& json, const char* key) {
  const Json* given = json_member(json, text(key, "_dict"));
  if (given == nullptr) given = json_member(json, key);
  if (given == nullptr) return Json(Json::Members{});
  require(given->members() != nullptr, Status::kTypeMismatch, key, " is ", print_json(*given), "; expected an object");
  refuse_quantization(*given);
  return *given;
}

ModulePtr with_dtype(ModulePtr model, const Json& json) {
  refuse_quantization(json);
  if (const at::ScalarType dtype = weight_dtype(json); dtype != at::kFloat) model->to(dtype, std::nullopt);
  return model;
}

constexpr const char* kClassifier = "CLIPForImageClassification";
constexpr const char* kTextNames[] = {"CLIPTextModel", "CLIPTextModelWithProjection"};
constexpr const char* kVisionNames[] = {"CLIPVisionModel", "CLIPVisionModelWithProjection"};

ModulePtr tower_model(const std::string& name, const Json& json) {
  if (name == kTextNames[0]) return clip_text_tower(json, /*is_whole=*/true);
  if (name == kVisionNames[0]) return clip_vision_tower(json, /*is_whole=*/true);
  return std::make_shared<ClipModelWithProjection>(name, json, name == kTextNames[1]);
}

}  // namespace

ModulePtr build_clip(const Json& json) {
  const std::string name =
      model_class(json, {"CLIPModel", kClassifier, kTextNames[0], kTextNames[1], kVisionNames[0], kVisionNames[1]});
  const Json text = tower_config(json, "text_config"), vision = tower_config(json, "vision_config");
  if (name == kClassifier) return with_dtype(std::make_shared<ClipForImageClassification>(json, vision), json);
  if (name == "CLIPModel") return with_dtype(std::make_shared<ClipModel>(json, text, vision), json);
  return with_dtype(tower_model(name, name.rfind("CLIPText", 0) == 0 ? text : vision), json);
}

ModulePtr build_clip_text(const Json& json) {
  return with_dtype(tower_model(model_class(json, {kTextNames[0], kTextNames[1]}), json), json);
}

ModulePtr build_clip_vision(const Json& json) {
  return with_dtype(tower_model(model_class(json, {kVisionNames[0], kVisionNames[1]}), json), json);
}

}  // namespace accel::nn
