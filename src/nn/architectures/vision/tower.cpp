// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/vision/tower.hpp"

#include <ATen/core/ivalue.h>

#include <memory>
#include <utility>

#include "base/error.hpp"
#include "nn/architectures/encoder.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/layers/activation.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

at::Tensor run_tower_layer(Module& layer, const at::Tensor& hidden, const at::Tensor& mask) {
  const c10::IValue output = layer.call(Inputs{hidden, mask.defined() ? c10::IValue(mask) : c10::IValue()});
  return tree::sequence_items(output)[0].toTensor();
}

}  // namespace

void Tower::add_layers(const std::string& list, int64_t layers, const SequenceConfig& config,
                       const SequenceLayerNames& names, bool is_causal) {
  list_ = list;
  first_children_ = children().size();
  const auto all = std::make_shared<Module>("ModuleList");
  for (int64_t layer = 0; layer < layers; layer++)
    all->add_child(std::to_string(layer), layers_.emplace_back(sequence_layer(config, names, is_causal, false)));
  add_at(*this, list, all);
}

c10::IValue Tower::forward(const Inputs& inputs) {
  Embedded state = embed(inputs);
  for (const ModulePtr& layer : layers_) state.hidden = run_tower_layer(*layer, state.hidden, state.mask);
  return finish(state.hidden, state.pooled);
}

std::vector<std::string> Tower::children_between(size_t begin, size_t end) const {
  std::vector<std::string> names;
  for (size_t i = begin; i < end; i++) names.push_back(children()[i].first);
  return names;
}

// Parts pass [hidden], [hidden, pooled] or [hidden, pooled, mask].
ModuleChain Tower::chain() {
  ModuleChain chain{{"embed", children_between(0, first_children_), [this](const c10::IValue& input) {
                       Embedded state = embed(tree::sequence_items(input).vec());
                       std::vector<c10::IValue> passed{std::move(state.hidden)};
                       if (state.pooled.defined()) passed.emplace_back(std::move(state.pooled));
                       if (state.mask.defined()) passed.emplace_back(std::move(state.mask));
                       return tree::new_list(std::move(passed));
                     }}};
  for (const ModulePtr& layer : layers_) {
    const std::string name = text(list_, ".", chain.size() - 1);
    chain.push_back({name, {name}, [layer](const c10::IValue& input) {
                       std::vector<c10::IValue> passed = tree::sequence_items(input).vec();
                       passed[0] = run_tower_layer(*layer, passed[0].toTensor(),
                                                   passed.size() > 2 ? passed[2].toTensor() : at::Tensor());
                       return tree::new_list(std::move(passed));
                     }});
  }
  // The list of layers is one child.
  chain.push_back({"head", children_between(first_children_ + 1, children().size()), [this](const c10::IValue& input) {
                     const auto passed = tree::sequence_items(input);
                     return finish(passed[0].toTensor(), passed.size() > 1 ? passed[1].toTensor() : at::Tensor());
                   }});
  return chain;
}

bool flag_input(const Inputs& inputs, size_t place, const char* name, const std::string& kind) {
  if (place >= inputs.size() || inputs[place].isNone()) return false;
  require(inputs[place].isBool(), Status::kTypeMismatch, name, " of a module of kind '", kind, "' is a ",
          tree::kind_name(inputs[place]), "; expected a truth value");
  return inputs[place].toBool();
}

at::Tensor tower_states(const c10::IValue& output) {
  return output.isTensor() ? output.toTensor() : tree::sequence_items(output)[0].toTensor();
}

at::Tensor tower_pooled(const c10::IValue& output) { return tree::sequence_items(output)[1].toTensor(); }

SequenceConfig read_tower_config(const Json& json, const char* prefix, int64_t hidden, int64_t inner, int64_t heads,
                                 const char* activation) {
  SequenceConfig config{};
  config.prefix = prefix;
  config.model_size = size_member(json, "hidden_size", hidden);
  config.num_heads = size_member(json, "num_attention_heads", heads);
  require(config.model_size % config.num_heads == 0, Status::kInvalidArgument, "hidden_size ", config.model_size,
          " is not divisible by num_attention_heads ", config.num_heads, "; every head needs the same size");
  config.head_size = config.model_size / config.num_heads;
  config.inner_size = size_member(json, "intermediate_size", inner);
  config.has_bias = config.has_query_bias = config.has_key_bias = true;
  config.activation = json_text(json, "hidden_act", activation);
  require(Activation::knows(config.activation), Status::kUnsupported, "hidden_act '", config.activation,
          "' is not known");
  config.deviation = initializer_range(json);
  config.dtype = at::kFloat;  // the whole model gets its dtype at the end
  return config;
}

}  // namespace accel::nn
