// SPDX-License-Identifier: Apache-2.0
// GPT-2 against GPT2LMHeadModel of transformers, with weights that a formula gives.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include "architecture_fixture.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace gpt2_test {

using tests::expect_error;

TEST(Gpt2, GivesTheLogitsAndGradientsOfTheReference) {
  const Json fixture = tests::read_fixture("gpt2_tiny.json");
  for (const Json& recorded : *fixture.items()) {
    SCOPED_TRACE(print_json(*json_member(recorded, "config")));
    const ModulePtr model = tests::recorded_model(recorded, 1);
    tests::expect_recorded_state(*model, recorded);
    tests::expect_recorded_numbers(*model, recorded, 0);
  }
}

// In calls with a cache, positions go on behind the tokens that it has keys and values of.
TEST(Gpt2, EarlierTokensInPartsGiveTheSameLogits) {
  const at::NoGradGuard no_grad;
  const Json fixture = tests::read_fixture("gpt2_tiny.json");
  for (const Json& recorded : *fixture.items()) {
    const ModulePtr model = tests::recorded_model(recorded, 1);
    model->train(false);
    const at::Tensor tokens = tests::tokens_of(*json_member(recorded, "tokens"));
    std::vector<at::Tensor> logits;
    c10::IValue past = tree::new_list();
    for (const at::Tensor& part : {tokens.slice(1, 0, 2), tokens.slice(1, 2, 3), tokens.slice(1, 3)}) {
      const c10::IValue output = model->call(Inputs{part, past});
      logits.push_back(tree::sequence_items(output)[0].toTensor());
      past = tree::sequence_items(output)[1];
    }
    EXPECT_TRUE(at::allclose(at::cat(logits, 1), model->call(tokens), 1e-5, 1e-5));
  }
}

TEST(Gpt2, StartsWithTheDistributionsOfThePaper) {
  at::manual_seed(0);
  const ModulePtr model =
      module_from_config(R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 8, "n_head": 2, "vocab_size": 300})");
  const auto deviation = [&](const char* path) { return nn::find_tensor(*model, path).detach().std().item<double>(); };
  EXPECT_NEAR(deviation("transformer.wte.weight"), 0.02, 5e-4);
  EXPECT_NEAR(deviation("transformer.h.3.attn.c_attn.weight"), 0.02, 5e-4);
  EXPECT_NEAR(deviation("transformer.h.3.attn.c_proj.weight"), 0.005, 3e-4);
  EXPECT_NEAR(deviation("transformer.h.3.mlp.c_proj.weight"), 0.005, 3e-4);
  EXPECT_EQ(nn::find_tensor(*model, "transformer.h.3.mlp.c_fc.bias").abs().max().item<double>(), 0);
  EXPECT_TRUE(nn::find_tensor(*model, "lm_head.weight").is_same(nn::find_tensor(*model, "transformer.wte.weight")));
  EXPECT_EQ(nn::named_parameters(*model).size() + 1, model->state_dict().size());
}

TEST(Gpt2, DropoutIsActiveInTraining) {
  at::manual_seed(0);
  const ModulePtr model =
      module_from_config(R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 5})");
  const at::Tensor tokens = at::ones({1, 6}, at::kLong);
  EXPECT_FALSE(at::equal(model->call(tokens), model->call(tokens)));
  model->train(false);
  EXPECT_TRUE(at::equal(model->call(tokens), model->call(tokens)));
}

TEST(Gpt2, HonoursTheDtype) {
  const ModulePtr model = module_from_config(
      R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 5, "torch_dtype": "bfloat16"})");
  EXPECT_EQ(model->call(at::ones({1, 6}, at::kLong)).scalar_type(), at::kBFloat16);
}

// Regression: a configuration that is a folder was an internal error.
TEST(Gpt2, RefusesWhatItCannotDo) {
  const auto build = [](const char* setting) {
    return [setting] {
      module_from_config(text(R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, )", setting, "}"));
    };
  };
  expect_error(Status::kUnsupported, "add_cross_attention is true", build(R"("add_cross_attention": true)"));
  expect_error(Status::kUnsupported, "reorder_and_upcast_attn", build(R"("reorder_and_upcast_attn": true)"));
  expect_error(Status::kUnsupported, "quantization_config", build(R"("quantization_config": {"bits": 4})"));
  expect_error(Status::kUnsupported, "'swoosh'", build(R"("activation_function": "swoosh")"));
  expect_error(Status::kUnsupported, "GPT2ForSequenceClassification",
               build(R"("architectures": ["GPT2ForSequenceClassification"])"));
  expect_error(Status::kUnsupported, "'int4'", build(R"("dtype": "int4")"));
  expect_error(Status::kInvalidArgument, "vocab_size is 0", build(R"("vocab_size": 0)"));
  expect_error(Status::kInvalidArgument, "attn_pdrop is 2", build(R"("attn_pdrop": 2)"));
  expect_error(Status::kTypeMismatch, "'n_positions'", build(R"("n_positions": "many")"));
  expect_error(Status::kInvalidArgument, "not divisible",
               [] { module_from_config(R"({"model_type": "gpt2", "n_embd": 9, "n_head": 2})"); });
  expect_error(Status::kUnsupported, "'xlnet' is not known; expected one of llama, mistral",
               [] { module_from_config(R"({"model_type": "xlnet"})"); });
  expect_error(Status::kNotFound, "'no/config.json'", [] { module_from_config("no/config.json"); });
  expect_error(Status::kIo, "'.' is not a regular file; expected a config.json", [] { module_from_config("."); });
  expect_error(Status::kInvalidArgument, "not valid JSON", [] { module_from_config("{"); });
}

TEST(Gpt2, RefusesWrongTokens) {
  const ModulePtr model = module_from_config(
      R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 5, "n_positions": 4})");
  expect_error(Status::kShapeMismatch, "n_positions = 4", [&] { model->call(at::ones({1, 5}, at::kLong)); });
  expect_error(Status::kShapeMismatch, "[batch, length]", [&] { model->call(at::ones({5}, at::kLong)); });
  expect_error(Status::kTypeMismatch, "int64", [&] { model->call(at::ones({1, 3})); });
  const at::Tensor tokens = at::ones({1, 3}, at::kLong);
  const c10::IValue output = model->call(Inputs{tokens, tree::new_list()}), past = tree::sequence_items(output)[1];
  expect_error(Status::kShapeMismatch, "with 6 positions", [&] { model->call(Inputs{tokens, past}); });
  expect_error(Status::kTypeMismatch, "past_key_values of a module of kind 'GPT2Model' is a tensor", [&] {
    model->call(Inputs{tokens, tokens});
  });
  expect_error(Status::kInvalidArgument, "past_key_values has 2 layers; expected 1", [&] {
    model->call(Inputs{tokens, tree::new_list({tree::new_list(), tree::new_list()})});
  });
  expect_error(Status::kShapeMismatch, "attention_mask is of shape [1, 2]; expected a tensor [1, 3]", [&] {
    model->call(Inputs{tokens, c10::IValue(), tokens.slice(1, 1)});
  });
  expect_error(Status::kShapeMismatch, "position_ids is of shape [1, 2]; expected a tensor [1, 3]", [&] {
    model->call(Inputs{tokens, c10::IValue(), c10::IValue(), tokens.slice(1, 1)});
  });
}

}  // namespace gpt2_test
}  // namespace accel::nn
