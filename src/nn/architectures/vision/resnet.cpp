// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/vision/resnet.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/architectures/encoder.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/architectures/vision/image_embedding.hpp"
#include "nn/architectures/vision/tower.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/convolution.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/sequential.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

constexpr int64_t kMostLayers = 4096;
constexpr int64_t kLargestSize = 1 << 30;
constexpr int64_t kReduction = 4;  // of the channels inside of a bottleneck

struct ResNetConfig {
  int64_t channels, embedding;
  std::vector<int64_t> sizes, depths;  // of each stage
  bool is_bottleneck, downsamples_first_stage, downsamples_in_bottleneck;
  std::string activation;
};

std::vector<int64_t> resnet_sizes(const Json& json, const char* key, std::vector<int64_t> otherwise) {
  const Json* const given = json_member(json, key);
  if (given == nullptr) return otherwise;
  require(given->items() != nullptr && !given->items()->empty(), Status::kTypeMismatch, key, " is ", print_json(*given),
          "; expected a list of whole numbers");
  std::vector<int64_t> sizes;
  for (const Json& item : *given->items()) {
    require(item.integer().has_value(), Status::kTypeMismatch, key, " has ", print_json(item),
            "; expected whole numbers");
    const int64_t size = sizes.emplace_back(*item.integer());
    check_size(size, key);
    require(size <= kLargestSize, Status::kInvalidArgument, key, " has ", size, "; expected at most ", kLargestSize);
  }
  return sizes;
}

ResNetConfig read_resnet_config(const Json& json) {
  refuse_quantization(json);
  ResNetConfig config{};
  config.channels = size_member(json, "num_channels", 3);
  config.embedding = size_member(json, "embedding_size", 64);
  config.sizes = resnet_sizes(json, "hidden_sizes", {256, 512, 1024, 2048});
  config.depths = resnet_sizes(json, "depths", {3, 4, 6, 3});
  require(config.sizes.size() == config.depths.size(), Status::kInvalidArgument, "hidden_sizes has ",
          config.sizes.size(), " numbers and depths ", config.depths.size(), "; expected one of each stage");
  int64_t layers = 0;
  for (const int64_t depth : config.depths) layers += depth;
  require(layers <= kMostLayers, Status::kInvalidArgument, "depths are ", layers, " layers; expected at most ",
          kMostLayers);
  const std::string layer = json_text(json, "layer_type", "bottleneck");
  require(layer == "basic" || layer == "bottleneck", Status::kUnsupported, "layer_type is '", layer,
          "'; expected 'basic' or 'bottleneck'");
  config.is_bottleneck = layer == "bottleneck";
  for (const int64_t size : config.sizes)
    require(!config.is_bottleneck || size >= kReduction, Status::kInvalidArgument, "hidden_sizes has ", size,
            ", of which a bottleneck has a part; expected at least ", kReduction);
  config.downsamples_first_stage = json_flag(json, "downsample_in_first_stage", false);
  config.downsamples_in_bottleneck = json_flag(json, "downsample_in_bottleneck", false);
  config.activation = json_text(json, "hidden_act", "relu");
  require(Activation::knows(config.activation), Status::kUnsupported, "hidden_act '", config.activation,
          "' is not known");
  return config;
}

// A convolution whose output is normalized over the batch and, in a ResNetConvLayer with an activation, activated.
class NormalizedConvolution final : public Module {
 public:
  NormalizedConvolution(std::string kind, int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride,
                        const std::string& activation)
      : Module(std::move(kind)) {
    const Conv2dShape shape{in_channels, out_channels, kernel, stride, kernel / 2};
    add_child("convolution", convolution_ = std::make_shared<Conv2d>(shape, /*bias=*/false));
    const auto fan_out = static_cast<double>(out_channels * kernel * kernel);
    fill_normal(find_tensor(*convolution_, "weight"), 0, std::sqrt(2.0 / fan_out));
    add_child("normalization", normalization_ = std::make_shared<BatchNorm>(out_channels));
    if (!activation.empty()) add_child("activation", activation_ = std::make_shared<Activation>(activation));
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor normal = normalization_->call(convolution_->call(only_tensor(inputs)));
    return activation_ == nullptr ? normal : activation_->call(normal);
  }

 private:
  ModulePtr convolution_, normalization_, activation_;
};

// The activations inside of a layer are always ReLU.
ModulePtr inner_convolution(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride,
                            const std::string& activation = "relu") {
  return std::make_shared<NormalizedConvolution>("ResNetConvLayer", in_channels, out_channels, kernel, stride,
                                                 activation);
}

class ResNetLayer final : public Module {
 public:
  ResNetLayer(const ResNetConfig& config, int64_t in_channels, int64_t out_channels, int64_t stride)
      : Module(config.is_bottleneck ? "ResNetBottleNeckLayer" : "ResNetBasicLayer") {
    if (in_channels != out_channels || stride != 1)
      add_child("shortcut", shortcut_ = std::make_shared<NormalizedConvolution>("ResNetShortCut", in_channels,
                                                                                out_channels, 1, stride, ""));
    std::vector<ModulePtr> convolutions;
    if (config.is_bottleneck) {
      const int64_t reduced = out_channels / kReduction;
      const int64_t first = config.downsamples_in_bottleneck ? stride : 1, second = stride / first;
      convolutions = {inner_convolution(in_channels, reduced, 1, first), inner_convolution(reduced, reduced, 3, second),
                      inner_convolution(reduced, out_channels, 1, 1, "")};
    } else {
      convolutions = {inner_convolution(in_channels, out_channels, 3, stride),
                      inner_convolution(out_channels, out_channels, 3, 1, "")};
    }
    add_child("layer", layer_ = std::make_shared<Sequential>(convolutions));
    add_child("activation", activation_ = std::make_shared<Activation>(config.activation));
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& hidden = only_tensor(inputs);
    return activation_->call(layer_->call(hidden) + (shortcut_ == nullptr ? hidden : shortcut_->call(hidden)));
  }

 private:
  ModulePtr shortcut_, layer_, activation_;
};

class ResNetEmbeddings final : public Module {
 public:
  explicit ResNetEmbeddings(const ResNetConfig& config) : Module("ResNetEmbeddings"), channels_(config.channels) {
    add_child("embedder", embedder_ = inner_convolution(config.channels, config.embedding, 7, 2, config.activation));
  }
  std::vector<std::string> input_names() const override { return {"pixel_values"}; }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& images = only_tensor(inputs);
    require_images(images, channels_, nullptr, kind());
    return at::max_pool2d(embedder_->call(images), {3, 3}, {2, 2}, {1, 1});
  }

 private:
  int64_t channels_;
  ModulePtr embedder_;
};

// Gives [features [batch, channels, height, width], pooled [batch, channels, 1, 1]].
class ResNetModel final : public Module {
 public:
  explicit ResNetModel(const ResNetConfig& config) : Module("ResNetModel") {
    add_child("embedder", embedder_ = std::make_shared<ResNetEmbeddings>(config));
    const auto stages = std::make_shared<Module>("ModuleList");
    int64_t channels = config.embedding;
    for (size_t stage = 0; stage < config.sizes.size(); stage++) {
      const int64_t size = config.sizes[stage];
      std::vector<ModulePtr> layers;
      for (int64_t layer = 0; layer < config.depths[stage]; layer++) {
        const bool downsamples = layer == 0 && (stage > 0 || config.downsamples_first_stage);
        layers.push_back(std::make_shared<ResNetLayer>(config, channels, size, downsamples ? 2 : 1));
        layers_.emplace_back(text("encoder.stages.", stage, ".layers.", layer), layers.back());
        channels = size;
      }
      const auto module = std::make_shared<Module>("ResNetStage");
      module->add_child("layers", std::make_shared<Sequential>(layers));
      stages->add_child(std::to_string(stage), module);
    }
    add_at(*this, "encoder.stages", stages);
  }
  std::vector<std::string> input_names() const override { return {"pixel_values"}; }

  ModuleChain chain() override {
    ModuleChain chain{{"embed", {"embedder"}, [this](const c10::IValue& input) {
                         return embedder_->call(tree::sequence_items(input).vec());
                       }}};
    for (const auto& [path, layer] : layers_)
      chain.push_back({path, {path}, [layer = layer](const c10::IValue& input) { return layer->call(Inputs{input}); }});
    chain.back().call = [call = std::move(chain.back().call)](const c10::IValue& input) {
      return with_pooled(call(input).toTensor());
    };
    return chain;
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    at::Tensor hidden = embedder_->call(only_tensor(inputs));
    for (const auto& [path, layer] : layers_) hidden = layer->call(hidden);
    return with_pooled(std::move(hidden));
  }

 private:
  static c10::IValue with_pooled(at::Tensor hidden) {
    at::Tensor pooled = at::adaptive_avg_pool2d(hidden, {1, 1});
    return tree::new_list({std::move(hidden), std::move(pooled)});
  }

  ModulePtr embedder_;
  std::vector<std::pair<std::string, ModulePtr>> layers_;
};

class ResNetForImageClassification final : public Module {
 public:
  ResNetForImageClassification(const ResNetConfig& config, int64_t classes) : Module("ResNetForImageClassification") {
    add_child("resnet", resnet_ = std::make_shared<ResNetModel>(config));
    // Files count the flattening in front of it.
    add_at(*this, "classifier.1", classifier_ = std::make_shared<Linear>(config.sizes.back(), classes, true));
  }
  std::vector<std::string> input_names() const override { return resnet_->input_names(); }
  ModuleChain chain() override {
    return chain_with_head(resnet_->chain(), "resnet", "classifier",
                           [this](const c10::IValue& output) { return scores_of(output); });
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return scores_of(resnet_->call(inputs)); }

 private:
  c10::IValue scores_of(const c10::IValue& output) { return classifier_->call(tower_pooled(output).flatten(1)); }

  ModulePtr resnet_, classifier_;
};

}  // namespace

ModulePtr build_resnet(const Json& json) {
  const std::string name = model_class(json, {"ResNetModel", "ResNetForImageClassification"});
  const ResNetConfig config = read_resnet_config(json);
  ModulePtr model;
  if (name == "ResNetModel")
    model = std::make_shared<ResNetModel>(config);
  else
    model = std::make_shared<ResNetForImageClassification>(config, number_of_classes(json));
  if (const at::ScalarType dtype = weight_dtype(json); dtype != at::kFloat) model->to(dtype, std::nullopt);
  return model;
}

}  // namespace accel::nn
