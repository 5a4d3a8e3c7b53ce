// SPDX-License-Identifier: Apache-2.0
// Tower: an encoder that embeds images or tokens, runs layers with normalization before their residual branches, and
// pools one vector of each sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "nn/architectures/sequence_layer.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// Gives [hidden states, pooled], or the hidden states alone, and is a chain: what is embedded, the layers, and what is
// behind them. Its children are what the derived class adds before add_layers(), the layers, and what it adds behind.
class Tower : public Module {
 public:
  ModuleChain chain() override;

 protected:
  explicit Tower(std::string kind) : Module(std::move(kind)) {}

  struct Embedded {
    at::Tensor hidden;  // [batch, length, size]
    at::Tensor pooled;  // [batch], the positions to be pooled; undefined: the first ones
    at::Tensor mask;    // of attention; undefined: none
  };
  virtual Embedded embed(const Inputs& inputs) = 0;
  virtual c10::IValue finish(const at::Tensor& hidden, const at::Tensor& pooled) = 0;

  // "<list>.0" and so on. In a causal tower a position sees the earlier ones alone.
  void add_layers(const std::string& list, int64_t layers, const SequenceConfig& config,
                  const SequenceLayerNames& names, bool is_causal);
  const std::vector<ModulePtr>& layers() const { return layers_; }

  c10::IValue forward(const Inputs& inputs) override;

 private:
  std::vector<std::string> children_between(size_t begin, size_t end) const;

  std::string list_;
  size_t first_children_ = 0;  // children before the layers
  std::vector<ModulePtr> layers_;
};

// Whether an input that may be missing is true.
bool flag_input(const Inputs& inputs, size_t place, const char* name, const std::string& kind);
// The states of a tower's output.
at::Tensor tower_states(const c10::IValue& output);
// The pooled vectors of a tower's output.
at::Tensor tower_pooled(const c10::IValue& output);

// Reads the members that configurations of towers share: hidden_size, intermediate_size, num_attention_heads and
SequenceConfig read_tower_config(const Json& config, const char* prefix, int64_t hidden, int64_t inner, int64_t heads,
                                 const char* activation);

}  // namespace accel::nn
