// SPDX-License-Identifier: Apache-2.0
// Small models of blocks, with weights or without, and folders with their weights.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bigmodel/load_and_dispatch.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"

namespace accel::tests {

struct BlockModelShape {
  int64_t blocks = 4, width = 16, inner = 32;
  bool is_tied = false;  // a head that is tied to the embedding
};

// The values of a weight depend on its name alone.
inline at::Tensor weight_values(const std::string& name, at::IntArrayRef sizes, at::TensorOptions options) {
  at::Tensor values = at::empty(sizes, options.dtype(at::kFloat));
  if (values.is_meta()) return values;
  uint64_t state = std::hash<std::string>()(name) | 1;
  float* const data = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); i++) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    data[i] = (static_cast<float>(state >> 40) / static_cast<float>(1 << 24) - 0.5F) * 0.25F;
  }
  return values;
}

class BlockModel {
 public:
  BlockModel(BlockModelShape shape, c10::Device device) : shape_(shape), options_(at::TensorOptions().device(device)) {}

  // Forward: tokens to logits with an embedding, otherwise [rows, width] to the same.
  std::shared_ptr<nn::CallbackModule> build() const {
    auto model = std::make_shared<nn::CallbackModule>("Model");
    if (shape_.is_tied) {
      auto embedding = module(
          "Embedding", {{"weight", {kTokens, shape_.width}}}, "embedding",
          [](nn::Module& self, const at::Tensor& x) { return at::embedding(nn::find_tensor(self, "weight"), x); });
      model->add_child("embedding", embedding);
    }
    auto list = std::make_shared<nn::CallbackModule>("ModuleList");
    for (int64_t i = 0; i < shape_.blocks; i++)
      list->add_child(std::to_string(i), block("layers." + std::to_string(i)));
    model->add_child("layers", list);
    if (shape_.is_tied) {
      model->add_child("head", linear("head", shape_.width, kTokens, false));
      nn::tie(*model, "head.weight", "embedding.weight");
    }
    model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
      at::Tensor x = inputs[0].toTensor();
      const nn::ModulePtr layers = self.find("layers");
      const bool has_head = self.children().size() > 1;
      if (has_head) x = self.find("embedding")->call(x);
      for (const auto& [name, layer] : layers->children()) x = layer->call(x);
      return has_head ? self.find("head")->call(x) : x;
    });
    return model;
  }

  static constexpr int64_t kTokens = 11;

 private:
  using Forward = std::function<at::Tensor(nn::Module&, const at::Tensor&)>;

  std::shared_ptr<nn::CallbackModule> module(
      const std::string& kind, const std::vector<std::pair<std::string, std::vector<int64_t>>>& parameters,
      const std::string& path, Forward forward) const {
    auto made = std::make_shared<nn::CallbackModule>(kind);
    for (const auto& [name, sizes] : parameters)
      made->add_parameter(name, weight_values(path + "." + name, sizes, options_));
    made->set_forward([forward = std::move(forward)](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
      return forward(self, inputs[0].toTensor());
    });
    return made;
  }

  std::shared_ptr<nn::CallbackModule> linear(const std::string& path, int64_t in, int64_t out, bool bias = true) const {
    std::vector<std::pair<std::string, std::vector<int64_t>>> parameters{{"weight", {out, in}}};
    if (bias) parameters.push_back({"bias", {out}});
    return module("Linear", parameters, path, [bias](nn::Module& self, const at::Tensor& x) {
      return at::linear(x, nn::find_tensor(self, "weight"), bias ? nn::find_tensor(self, "bias") : at::Tensor());
    });
  }

  std::shared_ptr<nn::CallbackModule> block(const std::string& path) const {
    auto made = module("Block", {{"scale", {shape_.width}}}, path, [](nn::Module& self, const at::Tensor& x) {
      return x * nn::find_tensor(self, "scale") + self.find("out")->call(at::gelu(self.find("in")->call(x)));
    });
    made->add_child("in", linear(path + ".in", shape_.width, shape_.inner));
    made->add_child("out", linear(path + ".out", shape_.inner, shape_.width));
    return made;
  }

  BlockModelShape shape_;
  at::TensorOptions options_;
};

inline std::shared_ptr<nn::CallbackModule> block_model(BlockModelShape shape = {}, c10::Device device = at::kCPU) {
  return BlockModel(shape, device).build();
}
inline std::shared_ptr<nn::CallbackModule> empty_block_model(BlockModelShape shape = {}) {
  return block_model(shape, at::kMeta);
}

// Bytes of the weights of a block.
inline int64_t block_bytes(BlockModelShape shape) {
  return 4 * (shape.width + 2 * shape.width * shape.inner + shape.inner + shape.width);
}

// A folder that is removed at the end.
class WeightFolder {
 public:
  WeightFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "accel_big_model_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  explicit WeightFolder(const nn::Module& model, uint64_t shard_bytes = 10'000'000'000) : WeightFolder() {
    SaveModelSettings options;
    options.max_shard_size = std::to_string(shard_bytes);
    checkpoint::save_model(path_, model.state_dict(), options);
  }
  ~WeightFolder() { std::filesystem::remove_all(path_); }
  WeightFolder(const WeightFolder&) = delete;
  WeightFolder& operator=(const WeightFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  nn::NamedTensors weights() const { return checkpoint::load_state_dict(path_); }

 private:
  std::string path_;
};

}  // namespace accel::tests
