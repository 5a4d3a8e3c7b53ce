// SPDX-License-Identifier: Apache-2.0
// Random trees of modules on the device meta, with ties, for tests of device maps.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bigmodel/device_map/max_memory.hpp"
#include "nn/callback_module.hpp"
#include "nn/module.hpp"
#include "nn/module_walks.hpp"

namespace accel::tests {

class RandomModel {
 public:
  explicit RandomModel(uint32_t seed) : random_(seed) {}

  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }

  nn::ModulePtr make(int64_t depth) {
    auto model = make_module("Model", depth);
    tie(*model);
    return model;
  }

  // Places with limits between nothing and all of the model.
  bigmodel::MaxMemory memory(double total) {
    bigmodel::MaxMemory memory;
    const int64_t accelerators = draw(0, 3);
    for (int64_t i = 0; i < accelerators; i++) memory.emplace_back(std::to_string(i), limit(total));
    if (accelerators == 0 || chance(0.6)) memory.emplace_back("cpu", limit(total));
    return memory;
  }

  // Some of the classes.
  std::vector<std::string> classes() {
    std::vector<std::string> found;
    for (const char* const name : {"Block", "Layer", "Norm"})
      if (chance(0.3)) found.emplace_back(name);
    return found;
  }

 private:
  double limit(double total) { return static_cast<double>(draw(0, static_cast<int64_t>(total * 1.2))); }

  std::shared_ptr<nn::CallbackModule> make_module(const std::string& kind, int64_t depth) {
    auto module = std::make_shared<nn::CallbackModule>(kind);
    const int64_t children = depth == 0 ? 0 : draw(depth > 1 ? 1 : 0, 4);
    for (int64_t i = 0; i < draw(children == 0 ? 1 : 0, 2); i++)
      module->add_parameter("w" + std::to_string(i), tensor());
    for (int64_t i = 0; i < children; i++) {
      static const char* const kinds[] = {"Block", "Layer", "Norm", "Dense"};
      module->add_child("m" + std::to_string(i), make_module(kinds[draw(0, 3)], depth - 1));
    }
    if (chance(0.3)) module->add_buffer("b", tensor(), chance(0.7));
    return module;
  }

  at::Tensor tensor() { return at::empty({draw(0, 40)}, at::TensorOptions().dtype(at::kFloat).device(at::kMeta)); }

  void tie(nn::Module& model) {
    std::vector<std::string> names;
    for (const auto& [name, parameter] : nn::named_parameters(model)) names.push_back(name);
    for (int64_t i = draw(0, 3); i > 0 && names.size() > 1; i--) {
      const std::string one = names[static_cast<size_t>(draw(0, static_cast<int64_t>(names.size()) - 1))];
      const std::string other = names[static_cast<size_t>(draw(0, static_cast<int64_t>(names.size()) - 1))];
      const at::Tensor source = nn::find_tensor(model, one);
      if (nn::find_tensor(model, other).sizes() != source.sizes()) replace(model, other, tensor_like(source));
      nn::tie(model, other, one);
    }
  }

  static at::Tensor tensor_like(const at::Tensor& other) {
    at::Tensor like = at::empty(other.sizes(), other.options());
    like.set_requires_grad(true);
    return like;
  }

  static void replace(nn::Module& model, const std::string& name, at::Tensor tensor) {
    const size_t dot = name.rfind('.');
    nn::Module& owner = *model.find(dot == std::string::npos ? "" : name.substr(0, dot));
    owner.replace_tensor(dot == std::string::npos ? name : name.substr(dot + 1), std::move(tensor));
  }

  std::mt19937 random_;
};

}  // namespace accel::tests
