// SPDX-License-Identifier: Apache-2.0
// Generation against transformers: greedy tokens, and the probabilities by which tokens are drawn.
#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "architecture_fixture.hpp"
#include "nn/callback_module.hpp"
#include "nn/generation/generate.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace generation_test {

using tests::expect_error;
using tests::tokens_of;

TokenChoiceSettings choice_of(const Json& settings) {
  TokenChoiceSettings choice;
  choice.temperature = json_number(settings, "temperature", 1);
  choice.top_k = json_integer(settings, "top_k", 0);
  choice.top_p = json_number(settings, "top_p", 1);
  choice.min_p = json_number(settings, "min_p", 0);
  choice.repetition_penalty = json_number(settings, "repetition_penalty", 1);
  return choice;
}

at::Tensor numbers_of(const Json& rows) {
  std::vector<at::Tensor> tensors;
  for (const Json& row : *rows.items()) tensors.push_back(at::tensor(tests::numbers(row), at::kFloat));
  return at::stack(tensors);
}

ModulePtr tiny(const char* settings = "") {
  at::manual_seed(3);
  ModulePtr model = module_from_config(text(
      R"({"model_type": "llama", "vocab_size": 17, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2,
       "num_attention_heads": 2, "initializer_range": 0.8)",
      settings, "}"));
  model->train(false);
  return model;
}

TEST(Generation, GivesTheTokensOfTheReference) {
  const Json fixture = tests::read_fixture("llama_tiny.json");
  for (const Json& recorded : *fixture.items()) {
    const ModulePtr model = tests::recorded_model(recorded, 4);
    const at::Tensor tokens = tokens_of(*json_member(recorded, "tokens"));
    const at::Tensor expected = tokens_of(*json_member(recorded, "generated"));
    GenerationSettings settings;
    settings.max_new_tokens = expected.size(1) - tokens.size(1);
    const Generated generated = generate(*model, tokens, {}, settings);
    EXPECT_TRUE(at::equal(generated.tokens, expected));
    EXPECT_EQ(generated.log_probabilities.sizes().vec(), (std::vector<int64_t>{2, settings.max_new_tokens}));
    EXPECT_LE(generated.log_probabilities.max().item<float>(), 0);
  }
}

TEST(Generation, DrawsByTheProbabilitiesOfTheReference) {
  const Json fixture = tests::read_fixture("token_choice.json");
  for (const Json& recorded : *fixture.items()) {
    const Json& settings = *json_member(recorded, "settings");
    SCOPED_TRACE(print_json(settings));
    const at::Tensor scores = numbers_of(*json_member(recorded, "scores"));
    const at::Tensor earlier = tokens_of(*json_member(recorded, "earlier"));
    TokenChoiceSettings choice = choice_of(settings);
    const at::Tensor probabilities = token_probabilities(scores, earlier, {}, choice);
    tests::expect_close(probabilities, tests::tensor_of(*json_member(recorded, "probabilities")), 1e-6);
    choice.samples = true;
    at::manual_seed(11);
    at::Tensor counts = at::zeros_like(scores);
    for (int draw = 0; draw < 2000; draw++) {
      const at::Tensor tokens = choose_tokens(scores, earlier, {}, choice, std::nullopt).tokens.unsqueeze(1);
      counts = counts.scatter_add(1, tokens, at::ones_like(tokens, at::kFloat));
    }
    EXPECT_LT((counts / 2000 - probabilities).abs().max().item<float>(), 0.05);
    EXPECT_EQ(counts.masked_select(probabilities.eq(0)).sum().item<float>(), 0);
  }
}

TEST(Generation, PaddingIsNoToken) {
  const at::Tensor scores = at::ones({1, 4}), earlier = tokens_of(parse_json("[[2, 1]]", ""));
  const at::Tensor is_token = tokens_of(parse_json("[[0, 1]]", "")).to(at::kBool);
  TokenChoiceSettings choice;
  choice.repetition_penalty = 2;
  const at::Tensor probabilities = token_probabilities(scores, earlier, is_token, choice)[0];
  EXPECT_EQ(probabilities[2].item<float>(), probabilities[0].item<float>());
  EXPECT_LT(probabilities[1].item<float>(), probabilities[0].item<float>());
}

// Sequences of several lengths in a batch get the tokens that each gets alone.
TEST(Generation, PaddingOnTheLeftChangesNothing) {
  const ModulePtr model = tiny();
  const at::Tensor tokens = tokens_of(parse_json("[[1, 5, 12, 3, 8], [0, 0, 7, 2, 4]]", ""));
  const at::Tensor mask = tokens_of(parse_json("[[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]", ""));
  GenerationSettings settings;
  settings.max_new_tokens = 9;
  const Generated together = generate(*model, tokens, mask, settings);
  const Generated first = generate(*model, tokens.slice(0, 0, 1), {}, settings);
  const Generated second = generate(*model, tokens.slice(0, 1).slice(1, 2), {}, settings);
  EXPECT_TRUE(at::equal(together.tokens[0], first.tokens[0]));
  EXPECT_TRUE(at::equal(together.tokens[1].slice(0, 2), second.tokens[0]));
  EXPECT_TRUE(at::allclose(together.log_probabilities[1], second.log_probabilities[0], 1e-4, 1e-5));
}

TEST(Generation, EndsAtStopTokens) {
  const ModulePtr model = tiny();
  const at::Tensor tokens = tokens_of(parse_json("[[1, 5], [7, 2]]", ""));
  GenerationSettings settings;
  settings.max_new_tokens = 12;
  const at::Tensor whole = generate(*model, tokens, {}, settings).tokens;
  const int64_t stop = whole[0][4].item<int64_t>();
  settings.stop_tokens = {stop};
  settings.pad_token = 16;
  const Generated generated = generate(*model, tokens, {}, settings);
  for (int64_t row = 0; row < 2; row++) {
    bool has_ended = false;
    for (int64_t place = 2; place < generated.tokens.size(1); place++) {
      const auto token = generated.tokens[row][place].item<int64_t>();
      EXPECT_EQ(token, has_ended ? 16 : whole[row][place].item<int64_t>());
      EXPECT_EQ(generated.log_probabilities[row][place - 2].item<float>() == 0, has_ended);
      has_ended = has_ended || token == stop;
    }
  }
  EXPECT_LE(generated.tokens.size(1), whole.size(1));
}

TEST(Generation, TellsOfTokensAndCanBeEnded) {
  const ModulePtr model = tiny();
  const at::Tensor tokens = tokens_of(parse_json("[[1, 5]]", ""));
  std::vector<at::Tensor> heard;
  const Generated generated = generate(*model, tokens, {}, GenerationSettings(), [&](const at::Tensor& added) {
    heard.push_back(added);
    return heard.size() < 3;
  });
  EXPECT_EQ(generated.tokens.size(1), 5);
  EXPECT_TRUE(at::equal(at::stack(heard, 1), generated.tokens.slice(1, 2)));
}

TEST(Generation, SeedsRepeatDraws) {
  const ModulePtr model = tiny();
  const at::Tensor tokens = at::ones({3, 2}, at::kLong);
  GenerationSettings settings;
  settings.choice.samples = true;
  settings.seed = 5;
  const at::Tensor first = generate(*model, tokens, {}, settings).tokens;
  EXPECT_TRUE(at::equal(first, generate(*model, tokens, {}, settings).tokens));
  settings.seed = 6;
  EXPECT_FALSE(at::equal(first, generate(*model, tokens, {}, settings).tokens));
  settings.choice.top_k = 1;
  GenerationSettings greedy;
  EXPECT_TRUE(at::equal(generate(*model, tokens, {}, settings).tokens, generate(*model, tokens, {}, greedy).tokens));
}

TEST(Generation, RefusesWhatItCannotDo) {
  const ModulePtr model = tiny();
  const at::Tensor tokens = at::ones({2, 3}, at::kLong);
  const auto with = [&](const std::function<void(GenerationSettings&)>& change) {
    return [&model, &tokens, change] {
      GenerationSettings settings;
      change(settings);
      generate(*model, tokens, {}, settings);
    };
  };
  expect_error(Status::kInvalidArgument, "max_new_tokens is 0", with([](auto& s) { s.max_new_tokens = 0; }));
  expect_error(Status::kInvalidArgument, "temperature is 0", with([](auto& s) { s.choice.temperature = 0; }));
  expect_error(Status::kInvalidArgument, "top_k is -1", with([](auto& s) { s.choice.top_k = -1; }));
  expect_error(Status::kInvalidArgument, "top_p is 0", with([](auto& s) { s.choice.top_p = 0; }));
  expect_error(Status::kInvalidArgument, "min_p is 2", with([](auto& s) { s.choice.min_p = 2; }));
  expect_error(Status::kInvalidArgument, "repetition_penalty is 0",
               with([](auto& s) { s.choice.repetition_penalty = 0; }));
  expect_error(Status::kShapeMismatch, "expected [batch, length]", [&] { generate(*model, tokens[0], {}, {}); });
  expect_error(Status::kTypeMismatch, "expected int64", [&] { generate(*model, tokens.to(at::kFloat), {}, {}); });
  expect_error(Status::kShapeMismatch, "attention_mask has the shape [2, 2]",
               [&] { generate(*model, tokens, tokens.slice(1, 1), {}); });
  at::Tensor right = tokens.clone();
  right[1][2].zero_();
  expect_error(Status::kInvalidArgument, "expected padding on the left", [&] { generate(*model, tokens, right, {}); });
  model->train(true);
  expect_error(Status::kInvalidState, "accel_module_train(module, 0)", [&] { generate(*model, tokens, {}, {}); });
  const ModulePtr encoder = module_from_config(
      R"({"model_type": "bert", "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
          "intermediate_size": 4})");
  encoder->train(false);
  expect_error(Status::kUnsupported, "takes no past_key_values", [&] { generate(*encoder, tokens, {}, {}); });
  const auto without_mask = std::make_shared<CallbackModule>("Decoder");
  without_mask->set_input_names({"input_ids", "past_key_values"});
  without_mask->train(false);
  expect_error(Status::kUnsupported, "takes no attention_mask", [&] { generate(*without_mask, tokens, tokens, {}); });
}

}  // namespace generation_test
}  // namespace accel::nn
