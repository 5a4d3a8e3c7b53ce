// SPDX-License-Identifier: Apache-2.0
// Llama against LlamaForCausalLM of transformers, with weights that a formula gives.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "architecture_fixture.hpp"
#include "nn/creation_device.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace llama_test {

using tests::expect_close;
using tests::expect_error;
using tests::tokens_of;

// The weights are larger than GPT-2's, so that generated tokens differ.
ModulePtr recorded_model(const Json& recorded) { return tests::recorded_model(recorded, 4); }

ModulePtr tiny(const std::string& settings = "") {
  return module_from_config(
      R"({"model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 1)" +
      (settings.empty() ? "" : ", " + settings) + "}");
}

TEST(Llama, HasTheTreeOfTheReference) {
  const Json fixture = tests::read_fixture("llama_tiny.json");
  for (const Json& recorded : *fixture.items()) {
    const ModulePtr model = recorded_model(recorded);
    tests::expect_recorded_state(*model, recorded);
    const auto modules = nn::named_modules(*model);
    const Json::Items& kinds = *json_member(recorded, "kinds")->items();
    ASSERT_EQ(modules.size(), kinds.size());
    for (size_t i = 0; i < kinds.size(); i++) {
      const Json::Items& entry = *kinds[i].items();
      EXPECT_EQ(modules[i].first, *entry[0].text());
      const bool is_activation = modules[i].first.find("act_fn") != std::string::npos;
      EXPECT_EQ(modules[i].second->kind(), is_activation ? modules[i].second->kind() : *entry[1].text());
    }
    const NamedTensors buffers = nn::named_buffers(*model);
    ASSERT_EQ(buffers.size(), 1u);
    EXPECT_EQ(buffers[0].first, "model.rotary_emb.inv_freq");
    expect_close(buffers[0].second, tests::tensor_of(*json_member(recorded, "inv_freq")), 1e-8);
  }
}

TEST(Llama, GivesTheLogitsAndGradientsOfTheReference) {
  const Json fixture = tests::read_fixture("llama_tiny.json");
  for (const Json& recorded : *fixture.items()) {
    SCOPED_TRACE(print_json(*json_member(recorded, "config")));
    const ModulePtr model = recorded_model(recorded);
    tests::expect_recorded_numbers(*model, recorded, 1e-4);
  }
}

// What a call with keys and values of earlier tokens returns.
struct Step {
  at::Tensor logits;
  c10::IValue past;
};
Step step(Module& model, const at::Tensor& tokens, const c10::IValue& past) {
  const c10::IValue output = model.call(Inputs{tokens, past});
  return {tree::sequence_items(output)[0].toTensor(), tree::sequence_items(output)[1]};
}

TEST(Llama, GeneratesTheTokensOfTheReferenceFromKeptKeysAndValues) {
  const at::NoGradGuard no_grad;
  const Json fixture = tests::read_fixture("llama_tiny.json");
  for (const Json& recorded : *fixture.items()) {
    const ModulePtr model = recorded_model(recorded);
    const at::Tensor generated = tokens_of(*json_member(recorded, "generated"));
    at::Tensor tokens = tokens_of(*json_member(recorded, "tokens"));
    Step last = step(*model, tokens, tree::new_list());
    while (true) {
      const at::Tensor next = at::argmax(last.logits.select(1, -1), -1, /*keepdim=*/true);
      tokens = at::cat({tokens, next}, 1);
      if (tokens.size(1) == generated.size(1)) break;
      last = step(*model, next, last.past);
    }
    EXPECT_TRUE(at::equal(tokens, generated)) << tokens << generated;
  }
}

TEST(Llama, EarlierTokensInPartsGiveTheSameLogits) {
  const at::NoGradGuard no_grad;
  const Json fixture = tests::read_fixture("llama_tiny.json");
  for (const Json& recorded : *fixture.items()) {
    const ModulePtr model = recorded_model(recorded);
    const at::Tensor tokens = tokens_of(*json_member(recorded, "tokens"));
    const Step first = step(*model, tokens.slice(1, 0, 2), tree::new_list());
    const Step second = step(*model, tokens.slice(1, 2, 4), first.past);
    const Step third = step(*model, tokens.slice(1, 4), second.past);
    expect_close(at::cat({first.logits, second.logits, third.logits}, 1), model->call(tokens), 1e-5);
  }
}

// Keys have room behind them, and only the first call behind a past may take it.
TEST(Llama, APastCanBeContinuedSeveralTimes) {
  const at::NoGradGuard no_grad;
  const Json fixture = tests::read_fixture("llama_tiny.json");
  const ModulePtr model = recorded_model((*fixture.items())[0]);
  const at::Tensor tokens = tokens_of(*json_member((*fixture.items())[0], "tokens"));
  const at::Tensor other = tokens.flip(1);
  c10::IValue past = tree::new_list(), forked;
  for (int64_t position = 0; position < tokens.size(1); position++) {
    if (position == 3) forked = past;
    past = step(*model, tokens.narrow(1, position, 1), past).past;
  }
  Step last{};
  for (int64_t position = 3; position < tokens.size(1); position++)
    last = step(*model, other.narrow(1, position, 1), position == 3 ? forked : last.past);
  const at::Tensor whole = model->call(at::cat({tokens.slice(1, 0, 3), other.slice(1, 3)}, 1));
  expect_close(last.logits, whole.slice(1, -1), 1e-5);
  expect_close(step(*model, other.narrow(1, 0, 1), past).logits,
               model->call(at::cat({tokens, other.narrow(1, 0, 1)}, 1)).slice(1, -1), 1e-5);
  const c10::InferenceMode inference;  // whose tensors others may not change
  expect_close(step(*model, other.narrow(1, 0, 1), past).logits,
               model->call(at::cat({tokens, other.narrow(1, 0, 1)}, 1)).slice(1, -1), 1e-5);
}

TEST(Llama, StartsWithItsDistributions) {
  at::manual_seed(0);
  const ModulePtr model = module_from_config(
      R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
          "num_attention_heads": 2, "initializer_range": 0.03, "attention_bias": true})");
  const auto deviation = [&](const char* path) { return nn::find_tensor(*model, path).detach().std().item<double>(); };
  EXPECT_NEAR(deviation("model.embed_tokens.weight"), 0.03, 1e-3);
  EXPECT_NEAR(deviation("model.layers.0.self_attn.o_proj.weight"), 0.03, 1e-3);
  EXPECT_NEAR(deviation("model.layers.0.mlp.down_proj.weight"), 0.03, 1e-3);
  EXPECT_NEAR(deviation("lm_head.weight"), 0.03, 1e-3);
  EXPECT_EQ(nn::find_tensor(*model, "model.layers.0.self_attn.q_proj.bias").abs().max().item<double>(), 0);
  EXPECT_EQ(nn::find_tensor(*model, "model.norm.weight").min().item<double>(), 1);
}

TEST(Llama, TiesItsHeadWhenAsked) {
  const ModulePtr tied = tiny(R"("tie_word_embeddings": true)"), untied = tiny();
  EXPECT_TRUE(nn::find_tensor(*tied, "lm_head.weight").is_same(nn::find_tensor(*tied, "model.embed_tokens.weight")));
  EXPECT_EQ(nn::num_parameters(*tied) + 5 * 8, nn::num_parameters(*untied));
}

TEST(Llama, HonoursTheDtypeAndKeepsFrequenciesExact) {
  const at::NoGradGuard no_grad;
  const ModulePtr model = tiny(R"("dtype": "bfloat16")");
  EXPECT_EQ(model->call(at::ones({1, 6}, at::kLong)).scalar_type(), at::kBFloat16);
  EXPECT_EQ(nn::find_tensor(*model, "model.rotary_emb.inv_freq").scalar_type(), at::kFloat);
}

TEST(Llama, HasItsShapesWithoutMemory) {
  ModulePtr model;
  {
    const CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/false);
    model = tiny(R"("head_dim": 6, "attention_bias": true, "dtype": "float16")");
  }
  for (const auto& [name, tensor] : model->state_dict()) {
    EXPECT_TRUE(tensor.is_meta()) << name;
    EXPECT_EQ(tensor.scalar_type(), at::kHalf) << name;
  }
  const auto shape = [&](const char* path) { return nn::find_tensor(*model, path).sizes().vec(); };
  EXPECT_EQ(shape("model.layers.1.self_attn.q_proj.weight"), (std::vector<int64_t>{12, 8}));
  EXPECT_EQ(shape("model.layers.1.self_attn.k_proj.bias"), (std::vector<int64_t>{6}));
  EXPECT_EQ(shape("model.layers.1.self_attn.o_proj.weight"), (std::vector<int64_t>{8, 12}));
  EXPECT_EQ(shape("model.layers.0.mlp.down_proj.weight"), (std::vector<int64_t>{8, 6}));
  EXPECT_FALSE(nn::find_tensor(*model, "model.rotary_emb.inv_freq").is_meta());
}

TEST(Llama, RefusesWhatItCannotDo) {
  const auto build = [](const char* setting) { return [setting] { tiny(setting); }; };
  expect_error(Status::kUnsupported, "'spiral' is not known; expected one of default, linear, llama3, yarn",
               build(R"("rope_scaling": {"type": "spiral", "factor": 2.0})"));
  expect_error(Status::kInvalidArgument, "factor is 0", build(R"("rope_parameters": {"rope_type": "dynamic"})"));
  expect_error(Status::kInvalidArgument, "factor is 0", build(R"("rope_scaling": {"type": "linear"})"));
  expect_error(
      Status::kInvalidArgument, "low_freq_factor is 4; expected less than high_freq_factor",
      build(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1})"));
  expect_error(Status::kTypeMismatch, "rope_scaling is [1]; expected an object", build(R"("rope_scaling": [1])"));
  expect_error(Status::kInvalidArgument, "rope_theta is -1", build(R"("rope_theta": -1)"));
  expect_error(Status::kUnsupported, "quantization_config", build(R"("quantization_config": {"bits": 4})"));
  expect_error(Status::kUnsupported, "'swoosh'", build(R"("hidden_act": "swoosh")"));
  expect_error(Status::kUnsupported, "LlamaForTokenClassification",
               build(R"("architectures": ["LlamaForTokenClassification"])"));
  expect_error(Status::kUnsupported, "'int4'", build(R"("dtype": "int4")"));
  expect_error(Status::kInvalidArgument, "head_dim is 3; expected an even number", build(R"("head_dim": 3)"));
  expect_error(Status::kInvalidArgument, "rms_norm_eps is -1", build(R"("rms_norm_eps": -1)"));
  expect_error(Status::kInvalidArgument, "attention_dropout is 2", build(R"("attention_dropout": 2)"));
  const auto heads = [](const char* settings) {
    return [settings] { module_from_config(text(R"({"model_type": "llama", "hidden_size": 8, )", settings, "}")); };
  };
  expect_error(Status::kInvalidArgument, "num_attention_heads 4 is not divisible by num_key_value_heads 3",
               heads(R"("num_attention_heads": 4, "num_key_value_heads": 3)"));
  expect_error(Status::kInvalidArgument, "hidden_size 8 is not divisible by num_attention_heads 3",
               heads(R"("num_attention_heads": 3)"));
  expect_error(Status::kInvalidArgument, "num_hidden_layers is 0",
               heads(R"("num_attention_heads": 2, "num_hidden_layers": 0)"));
}

TEST(Llama, RefusesWrongInputs) {
  const at::NoGradGuard no_grad;
  const ModulePtr model = tiny();
  const at::Tensor tokens = at::ones({1, 2}, at::kLong);
  expect_error(Status::kShapeMismatch, "expected token ids [batch, length]",
               [&] { model->call(at::ones({2}, at::kLong)); });
  expect_error(Status::kTypeMismatch, "expected int64 or int32", [&] { model->call(at::ones({1, 2})); });
  expect_error(Status::kTypeMismatch, "input 0 of a module of kind 'LlamaModel' is missing",
               [&] { model->call(Inputs{}); });
  expect_error(Status::kTypeMismatch, "past_key_values of a module of kind 'LlamaModel' is a int; expected a list",
               [&] {
                 model->call(Inputs{tokens, 3});
               });
  expect_error(Status::kInvalidArgument, "past_key_values has 1 layers; expected 2", [&] {
    model->call(Inputs{tokens, tree::new_list({tree::new_list()})});
  });
  expect_error(Status::kTypeMismatch, "no [key, value]", [&] {
    model->call(Inputs{tokens, tree::new_list({tokens, tokens})});
  });
  const CreationDevice meta(c10::Device(c10::kMeta), /*include_buffers=*/true);
  const ModulePtr empty = tiny();
  {
    const CreationDevice cpu(std::nullopt, /*include_buffers=*/true);
    const ModulePtr filled = tiny();
    for (const auto& [name, module] : nn::named_modules(*filled))
      for (const auto& [member, tensor] : nn::named_parameters(*module))
        if (member.find('.') == std::string::npos) empty->find(name)->replace_tensor(member, tensor);
  }
  expect_error(Status::kInvalidState, "'inv_freq' is on the device meta", [&] { empty->call(tokens); });
}

// A mixture of experts in the place of each layer's network, with the names of Mixtral.
TEST(Llama, LayersMayHaveExperts) {
  const ModulePtr model = tiny(R"("num_local_experts": 3, "num_experts_per_tok": 2)");
  const at::Tensor gate_up = nn::find_tensor(*model, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(gate_up.sizes().vec(), (std::vector<int64_t>{3, 12, 8}));
  EXPECT_EQ(nn::find_tensor(*model, "model.layers.0.mlp.gate.weight").sizes().vec(), (std::vector<int64_t>{3, 8}));
  const at::Tensor output = model->call(at::ones({2, 4}, at::kLong));
  EXPECT_EQ(output.sizes().vec(), (std::vector<int64_t>{2, 4, 5}));
  output.sum().backward();
  EXPECT_TRUE(gate_up.grad().defined());
  expect_error(Status::kUnsupported, "expected silu and no bias in experts",
               [] { tiny(R"("num_local_experts": 3, "hidden_act": "gelu")"); });
  expect_error(Status::kInvalidArgument, "experts_per_token is 4",
               [] { tiny(R"("num_local_experts": 3, "num_experts_per_tok": 4)"); });
}

}  // namespace llama_test
}  // namespace accel::nn
