// SPDX-License-Identifier: Apache-2.0
// Transformer encoder: the shared parts of BERT and its relatives, which differ in numbers and in the names of modules.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// Where the modules of an encoder are, as paths below it; the children of a layer below "<layers>.<number>".
struct EncoderNames {
  const char* layers;
  const char *query, *key, *value, *attention_output, *attention_norm;
  const char *up, *down, *output_norm;
};

struct EncoderConfig {
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, max_positions;
  int64_t type_vocab_size;  // 0: tokens have no types
  int64_t pad_token_id;
  bool counts_from_padding;  // positions are counted from pad_token_id + 1, and padding has none
  std::string activation;
  double hidden_dropout, attention_dropout, layer_norm_eps, initializer_range;
  at::ScalarType dtype;
};

// The child of `module` at a path such as "attention.self.query", in modules that are made on the way.
void add_at(Module& module, const std::string& path, const ModulePtr& child);

ModulePtr encoder_linear(int64_t in_features, int64_t out_features, const EncoderConfig& config);
ModulePtr encoder_norm(int64_t size, const EncoderConfig& config);

// Inputs: input_ids [batch, length], attention_mask [batch, length] (1: a token, 0: padding; default: all tokens),
// token_type_ids and position_ids [batch, length]. Output: hidden states [batch, length, hidden_size].
class Encoder : public Module {
 public:
  Encoder(std::string kind, const EncoderConfig& config, const EncoderNames& names);

  std::vector<std::string> input_names() const override;
  ModuleChain chain() override;

 protected:
  c10::IValue forward(const Inputs& inputs) override;
  at::Tensor encode(const Inputs& inputs);

 private:
  // Embedded tokens, and the mask of padding for attention, which is undefined without padding.
  struct Embedded {
    at::Tensor hidden, mask;
  };
  Embedded embed(const Inputs& inputs);
  at::Tensor positions(const at::Tensor& tokens, const Inputs& inputs) const;

  EncoderConfig config_;
  std::string layers_path_;
  ModulePtr words_, positions_, types_, norm_, dropout_;
  std::vector<ModulePtr> layers_;
};

}  // namespace accel::nn
