// SPDX-License-Identifier: Apache-2.0
// Paged caches, batches that sequences join and leave, guesses and prompt caches, against plain generation.
#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>

#include "architecture_fixture.hpp"
#include "bigmodel/load_and_dispatch.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/matmul/matmul_dispatch.hpp"
#include "nn/generation/continuous_batch.hpp"
#include "nn/generation/generate.hpp"
#include "nn/generation/prompt_cache.hpp"
#include "nn/generation/speculation.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace continuous_batch_test {

using tests::expect_error;
using Tokens = std::vector<int64_t>;

ModulePtr decoder(const char* settings = "", int64_t seed = 3) {
  at::manual_seed(seed);
  ModulePtr model = module_from_config(text(
      R"({"model_type": "llama", "vocab_size": 17, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2,
       "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "initializer_range": 0.5)",
      settings, "}"));
  model->train(false);
  return model;
}

ModulePtr other_decoder(const char* key, int64_t value) {
  ModulePtr model = module_from_config(text(
      R"({"model_type": "llama", "vocab_size": 17, "hidden_size": 16, "intermediate_size": 12, "num_attention_heads": 4, )",
      "\"", key, "\": ", value, "}"));
  model->train(false);
  return model;
}

ModulePtr windowed() {
  return module_from_config(
      R"({"model_type": "gemma2", "vocab_size": 17, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 3,
       "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "initializer_range": 0.8, "sliding_window": 40,
       "query_pre_attn_scalar": 16})");
}

ModulePtr gpt2() {
  at::manual_seed(5);
  ModulePtr model = module_from_config(
      R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 17, "n_positions": 64,
       "initializer_range": 0.8})");
  model->train(false);
  return model;
}

Tokens prompt_of(int64_t length, int64_t salt) {
  Tokens tokens;
  for (int64_t i = 0; i < length; i++) tokens.push_back((i * i + salt * (i + 3)) % 17);
  return tokens;
}

at::Tensor batch_of(const Tokens& tokens) { return at::tensor(tokens).unsqueeze(0); }

// The new tokens by the model's lists of keys and values, one call for each token.
Tokens plain(Module& model, Tokens tokens, int64_t count) {
  const at::NoGradGuard no_grad;
  const size_t length = tokens.size();
  for (int64_t i = 0; i < count; i++) tokens.push_back(model.call(batch_of(tokens))[0][-1].argmax().item<int64_t>());
  return {tokens.begin() + static_cast<int64_t>(length), tokens.end()};
}

GenerationSettings most(int64_t count) {
  GenerationSettings settings;
  settings.max_new_tokens = count;
  return settings;
}

struct Collected {
  std::map<int64_t, Tokens> tokens;
  std::map<int64_t, SequenceEnd> ends;
  int64_t steps = 0;
};

void run(ContinuousBatch& batch, Collected& collected, int64_t steps = 10000) {
  for (int64_t i = 0; i < steps; i++) {
    const BatchCounts counts = batch.counts();
    if (counts.running + counts.waiting == 0) return;
    for (const NewToken& token : batch.step()) {
      if (token.token >= 0) collected.tokens[token.sequence].push_back(token.token);
      if (token.end != SequenceEnd::kNone) collected.ends[token.sequence] = token.end;
      EXPECT_LE(token.log_probability, 1e-6);
    }
    collected.steps++;
  }
}

void expect_plain_tokens(const ModulePtr& model, int64_t longest) {
  BatchLimits limits;
  limits.max_sequences = 4;
  limits.max_prompt_tokens = 13;  // long prompts are computed in chunks
  ContinuousBatch batch(model, limits);
  Collected collected;
  std::map<int64_t, Tokens> expected;
  for (int64_t i = 0; i < 9; i++) {
    const Tokens prompt = prompt_of(1 + i * longest / 9, i);
    const int64_t count = 3 + i % 4 * 5;
    expected[batch.add(prompt, most(count))] = plain(*model, prompt, count);
    if (i % 3 == 0) run(batch, collected, 4);  // others have begun
  }
  run(batch, collected);
  EXPECT_EQ(collected.tokens, expected);
  for (const auto& [id, end] : collected.ends) EXPECT_EQ(end, SequenceEnd::kLength);
  EXPECT_EQ(collected.ends.size(), 9U);
}

TEST(ContinuousBatch, SequencesThatJoinAndLeaveGetTheirOwnTokens) { expect_plain_tokens(decoder(), 70); }
TEST(ContinuousBatch, LearnedPositionsAreThoseOfEachSequence) { expect_plain_tokens(gpt2(), 40); }

TEST(ContinuousBatch, WindowsAndCapsHoldInBlocks) {
  at::manual_seed(4);
  const ModulePtr model = windowed();
  model->train(false);
  expect_plain_tokens(model, 120);
}

TEST(ContinuousBatch, HalfPrecisionIsAttendedInItsOwnFormat) {
  const ModulePtr model = decoder();
  model->to(at::kBFloat16, std::nullopt);
  ContinuousBatch batch(model, {});
  const Tokens prompt = prompt_of(40, 2);
  batch.add(prompt, most(12));
  Collected collected;
  run(batch, collected);
  const Tokens expected = plain(*model, prompt, 12);
  EXPECT_EQ(collected.tokens[0][0], expected[0]);  // later ones may differ by rounding
  EXPECT_EQ(collected.tokens[0].size(), 12U);
}

TEST(ContinuousBatch, HooksOfOffloadingPassTheCache) {
  const ModulePtr model = decoder();
  const Tokens prompt = prompt_of(40, 2), expected = plain(*model, prompt, 9);
  bigmodel::cpu_offload(*model, c10::Device(c10::kCPU), {}, {});
  ContinuousBatch batch(model, {});
  batch.add(prompt, most(9));
  Collected collected;
  run(batch, collected);
  EXPECT_EQ(collected.tokens[0], expected);
  EXPECT_EQ(generate(*model, batch_of(prompt), {}, most(9)).tokens.size(1), 49);
}

TEST(ContinuousBatch, PromptsShareTheirBeginnings) {
  const ModulePtr model = decoder();
  ContinuousBatch batch(model, {});
  Collected collected;
  Tokens prompt = prompt_of(75, 1);
  std::map<int64_t, Tokens> expected;
  expected[batch.add(prompt, most(8))] = plain(*model, prompt, 8);
  run(batch, collected, 2);
  EXPECT_EQ(batch.counts().reused_tokens, 0);
  prompt.push_back(3);  // both write behind the shared block's middle
  expected[batch.add(prompt, most(8))] = plain(*model, prompt, 8);
  prompt[70] = (prompt[70] + 1) % 17;
  expected[batch.add(prompt, most(8))] = plain(*model, prompt, 8);
  run(batch, collected);
  EXPECT_EQ(collected.tokens, expected);
  EXPECT_EQ(batch.counts().reused_tokens, 75 + 70);
  prompt.push_back(2);
  batch.add(prompt, most(1));  // the others have ended
  run(batch, collected);
  EXPECT_EQ(batch.counts().reused_tokens, 75 + 70 + 76);
}

TEST(ContinuousBatch, SequencesWaitForRoom) {
  const ModulePtr model = decoder();
  BatchLimits limits;
  limits.max_cached_tokens = 128;
  ContinuousBatch batch(model, limits);
  Collected collected;
  std::map<int64_t, Tokens> expected;
  for (int64_t i = 0; i < 5; i++) {
    const Tokens prompt = prompt_of(40, i);
    expected[batch.add(prompt, most(20))] = plain(*model, prompt, 20);
  }
  run(batch, collected, 1);
  EXPECT_EQ(batch.counts().running, 2);
  EXPECT_EQ(batch.counts().waiting, 3);
  run(batch, collected);
  EXPECT_EQ(collected.tokens, expected);
  EXPECT_LE(batch.counts().cached_tokens, 128);
  expect_error(Status::kInvalidArgument, "expected at most max_cached_tokens, 128",
               [&] { batch.add(prompt_of(120, 0), most(20)); });
}

TEST(ContinuousBatch, EndsAtStopsAndWhenCancelled) {
  const ModulePtr model = decoder();
  const Tokens prompt = prompt_of(6, 3), whole = plain(*model, prompt, 12);
  ContinuousBatch batch(model, {});
  GenerationSettings settings = most(12);
  settings.stop_sequences = {{whole[3], whole[4]}, {99, whole[0]}};
  const int64_t stopped = batch.add(prompt, settings), cancelled = batch.add(prompt, most(12));
  const int64_t waiting = batch.add(prompt, most(12));
  Collected collected;
  EXPECT_TRUE(batch.cancel(waiting));
  run(batch, collected, 2);
  EXPECT_TRUE(batch.cancel(cancelled));
  EXPECT_FALSE(batch.cancel(cancelled));
  EXPECT_FALSE(batch.cancel(77));
  run(batch, collected);
  size_t end = 1;
  while (end < whole.size() && !(whole[end - 1] == whole[3] && whole[end] == whole[4])) end++;
  EXPECT_EQ(collected.tokens[stopped], Tokens(whole.begin(), whole.begin() + static_cast<int64_t>(end) + 1));
  EXPECT_EQ(collected.ends[stopped], SequenceEnd::kStop);
  EXPECT_EQ(collected.tokens[cancelled].size(), 2U);
  EXPECT_EQ(collected.tokens.count(waiting), 0U);
  GenerationSettings in_generate = settings;
  in_generate.pad_token = 16;
  const at::Tensor generated = generate(*model, batch_of(prompt), {}, in_generate).tokens;
  EXPECT_EQ(generated.size(1), 6 + static_cast<int64_t>(end) + 1);
}

TEST(ContinuousBatch, EachSequenceHasItsOwnSeed) {
  const ModulePtr model = decoder();
  const auto drawn = [&](int64_t others) {
    ContinuousBatch batch(model, {});
    GenerationSettings settings = most(10);
    settings.choice.samples = true;
    settings.seed = 9;
    settings.choice.temperature = 2;
    const int64_t id = batch.add(prompt_of(4, 1), settings);
    settings.seed = 10;
    for (int64_t i = 0; i < others; i++) batch.add(prompt_of(5 + i, i), settings);
    Collected collected;
    run(batch, collected);
    return collected.tokens[id];
  };
  EXPECT_EQ(drawn(0), drawn(3));
}

TEST(ContinuousBatch, LookUpGuessesWithoutOtherTokens) {
  const ModulePtr model = decoder();
  Tokens prompt;
  for (int i = 0; i < 6; i++) prompt.insert(prompt.end(), {4, 9, 2, 11});
  ContinuousBatch batch(model, {});
  GenerationSettings settings = most(40);
  settings.speculation.lookup_tokens = 2;
  batch.add(prompt, settings);
  batch.add(prompt_of(7, 2), most(40));
  Collected collected;
  run(batch, collected);
  EXPECT_EQ(collected.tokens[0], plain(*model, prompt, 40));
  EXPECT_EQ(collected.tokens[1], plain(*model, prompt_of(7, 2), 40));
  EXPECT_GT(batch.counts().guessed_tokens, 0);
}

TEST(ContinuousBatch, ScoresThatAreNotFiniteEndTheirSequence) {
  const ModulePtr model = decoder();
  {
    const at::NoGradGuard no_grad;
    find_tensor(*model, "model.embed_tokens.weight")[16].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  ContinuousBatch batch(model, {});
  batch.add({1, 16, 2}, most(5));
  GenerationSettings drawn = most(5);
  drawn.choice.samples = true;
  batch.add({16}, drawn);
  std::vector<NewToken> tokens = batch.step();
  ASSERT_EQ(tokens.size(), 2U);
  for (const NewToken& token : tokens) {
    EXPECT_EQ(token.end, SequenceEnd::kFailed);
    EXPECT_NE(token.error.find("not finite"), std::string::npos);
  }
  EXPECT_EQ(batch.counts().running, 0);
  expect_error(Status::kInvalidState, "not finite", [&] { generate(*model, batch_of({1, 16}), {}, {}); });
}

TEST(ContinuousBatch, PositionsOfTheModelAreTheLimit) {
  const ModulePtr model = decoder(R"(, "max_position_embeddings": 20)");
  ContinuousBatch batch(model, {});
  expect_error(Status::kInvalidArgument, "21 tokens; expected at most the 20 positions",
               [&] { batch.add(prompt_of(21, 0), {}); });
  expect_error(Status::kInvalidArgument, "21 tokens; expected at most the 20 positions",
               [&] { generate(*model, batch_of(prompt_of(21, 0)), {}, {}); });
  batch.add(prompt_of(18, 0), most(50));
  Collected collected;
  run(batch, collected);
  EXPECT_EQ(collected.tokens[0].size(), 3U);
  EXPECT_EQ(collected.ends[0], SequenceEnd::kLength);
  EXPECT_EQ(generate(*model, batch_of(prompt_of(18, 0)), {}, most(50)).tokens.size(1), 21);
}

TEST(ContinuousBatch, RefusesWhatItCannotDo) {
  const ModulePtr model = decoder();
  const auto with = [&](auto change) {
    return [&model, change] {
      BatchLimits limits;
      change(limits);
      ContinuousBatch batch(model, limits);
    };
  };
  expect_error(Status::kInvalidArgument, "max_sequences is 0", with([](auto& l) { l.max_sequences = 0; }));
  expect_error(Status::kInvalidArgument, "max_cached_tokens is -1", with([](auto& l) { l.max_cached_tokens = -1; }));
  expect_error(Status::kInvalidArgument, "max_prompt_tokens is 0", with([](auto& l) { l.max_prompt_tokens = 0; }));
  ContinuousBatch batch(model, {});
  expect_error(Status::kShapeMismatch, "has no token", [&] { batch.add({}, {}); });
  expect_error(Status::kInvalidArgument, "max_new_tokens is 0", [&] { batch.add({1}, most(0)); });
  GenerationSettings settings;
  settings.stop_sequences = {{}};
  expect_error(Status::kInvalidArgument, "stop_sequences has an empty list", [&] { batch.add({1}, settings); });
  settings = {};
  settings.speculation.draft = model;
  expect_error(Status::kUnsupported, "draft_model", [&] { batch.add({1}, settings); });
  settings.speculation.lookup_tokens = 2;
  expect_error(Status::kInvalidArgument, "both given", [&] { batch.add({1}, settings); });
  settings = {};
  settings.speculation.tokens = 65;
  expect_error(Status::kInvalidArgument, "speculated_tokens is 65", [&] { batch.add({1}, settings); });
  model->train(true);
  expect_error(Status::kInvalidState, "is in training", [&] { batch.step(); });
  const ModulePtr encoder = module_from_config(
      R"({"model_type": "bert", "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
          "intermediate_size": 4})");
  encoder->train(false);
  expect_error(Status::kUnsupported, "no attention with a paged cache", [&] { ContinuousBatch other(encoder, {}); });
}

TEST(Speculation, LooksUpWhatStoodBehindTheLatestTokens) {
  EXPECT_EQ(look_up({1, 2, 3, 9, 1, 2, 3}, 3, 2).tokens, (Tokens{9, 1}));
  EXPECT_EQ(look_up({1, 2, 5, 1, 2, 6, 1, 2}, 2, 9).tokens, (Tokens{6, 1, 2}));  // the last one
  EXPECT_EQ(look_up({7, 2, 5, 1, 2}, 3, 1).tokens, (Tokens{5}));                 // fewer tokens
  EXPECT_TRUE(look_up({1, 2, 3}, 2, 4).tokens.empty());
}

TEST(Speculation, GreedyTokensDoNotChange) {
  const ModulePtr model = decoder(), other = decoder("", 8);
  const Tokens prompt = prompt_of(9, 4);
  const Generated expected = generate(*model, batch_of(prompt), {}, most(40));
  for (const ModulePtr& draft : {model, other}) {
    GenerationSettings settings = most(40);
    settings.speculation.draft = draft;
    settings.choice.repetition_penalty = 1.3;
    GenerationSettings alone = most(40);
    alone.choice.repetition_penalty = 1.3;
    int64_t heard = 0;
    const Generated generated = generate(*model, batch_of(prompt), {}, settings, [&](const at::Tensor& token) {
      heard += token.size(0);
      return true;
    });
    EXPECT_EQ(heard, 40);
    EXPECT_TRUE(at::equal(generated.tokens, generate(*model, batch_of(prompt), {}, alone).tokens));
  }
  GenerationSettings settings = most(40);
  settings.speculation.lookup_tokens = 3;
  const Generated generated = generate(*model, batch_of(prompt), {}, settings);
  EXPECT_TRUE(at::equal(generated.tokens, expected.tokens));
  tests::expect_close(generated.log_probabilities, expected.log_probabilities, 1e-4);
  expect_error(Status::kUnsupported, "expected one", [&] {
    generate(*model, at::ones({2, 3}, at::kLong), {}, settings);
  });
}

// The tokens of guesses have the probabilities of the model, whatever the guesses are.
TEST(Speculation, DrawnTokensKeepTheirProbabilities) {
  at::manual_seed(12);
  const at::Tensor scores = at::randn({2, 5}), draft = at::randn({1, 5});
  TokenChoiceSettings choice;
  choice.samples = true;
  choice.temperature = 0.7;
  const at::Tensor p = token_probabilities(scores, {}, {}, choice), q = token_probabilities(draft, {}, {}, choice);
  constexpr int64_t kDraws = 6000;
  for (const bool is_sure : {false, true}) {
    at::Tensor first = at::zeros({5}), second = at::zeros({5, 5});
    int64_t accepted = 0;
    for (int64_t draw = 0; draw < kDraws; draw++) {
      Guesses guesses;
      if (!is_sure) guesses.probabilities = q;
      guesses.tokens = {is_sure ? 3 : at::multinomial(q[0], 1).item<int64_t>()};
      const NextTokens next = next_tokens(scores, {1}, guesses, choice, std::nullopt);
      first[next.tokens[0]] += 1;
      if (next.tokens.size() < 2) continue;
      accepted++;
      second[0][next.tokens[1]] += 1;
    }
    // Four standard deviations.
    for (int64_t token = 0; token < 5; token++) {
      const double expected = p[0][token].item<double>();
      EXPECT_NEAR(first[token].item<double>() / kDraws, expected, 4 * std::sqrt(expected * (1 - expected) / kDraws));
      const double behind = p[1][token].item<double>();
      EXPECT_NEAR(second[0][token].item<double>() / static_cast<double>(accepted), behind,
                  4 * std::sqrt(behind * (1 - behind) / static_cast<double>(accepted)));
    }
    EXPECT_GT(accepted, kDraws / 50);
    EXPECT_LT(accepted, kDraws);
  }
}

TEST(PromptCache, IsContinuedAndRefusedByAnotherModel) {
  const ModulePtr model = decoder();
  const Tokens prompt = prompt_of(70, 1);
  PromptCache saved;
  const Generated expected = generate(*model, batch_of(prompt), {}, most(6), nullptr, {nullptr, &saved});
  EXPECT_EQ(saved.tokens, prompt);
  ASSERT_EQ(saved.layers.size(), 2U);
  EXPECT_EQ(saved.layers[0].sizes().vec(), (std::vector<int64_t>{2, 2, 70, 24}));
  Tokens longer = prompt;
  longer.insert(longer.end(), {4, 4, 1});
  for (const Tokens& tokens : {prompt, longer, Tokens(prompt.begin(), prompt.begin() + 40), prompt_of(9, 5)}) {
    const Generated behind = generate(*model, batch_of(tokens), {}, most(6), nullptr, {&saved, nullptr});
    EXPECT_TRUE(at::equal(behind.tokens, generate(*model, batch_of(tokens), {}, most(6)).tokens));
  }
  const auto with = [&](const ModulePtr& other) {
    return [&saved, &prompt, other] { generate(*other, batch_of(prompt), {}, most(2), nullptr, {&saved, nullptr}); };
  };
  expect_error(Status::kInvalidArgument, "of another model, in layer", with(decoder("", 8)));
  expect_error(Status::kInvalidArgument, "expected [2, 4, 70, 4]", with(other_decoder("num_hidden_layers", 2)));
  expect_error(Status::kInvalidArgument, "has 2 layers; expected 1", with(other_decoder("num_hidden_layers", 1)));
  expect_error(Status::kUnsupported, "expected one, to save", [&] {
    generate(*model, at::ones({2, 3}, at::kLong), {}, most(2), nullptr, {nullptr, &saved});
  });
}

// With ACCEL_BENCH: the tokens of 16 sequences a second, together and one after the other.
TEST(ContinuousBatch, IsFasterThanOneAfterTheOther) {
  if (std::getenv("ACCEL_BENCH") == nullptr) GTEST_SKIP();
  // As calls of the C API have it.
  kernels::install_matmul_dispatch(kernels::MatmulChoice::kMeasured);
  const kernels::ComputeScope scope({/*use_tuned_kernels=*/true, /*use_cached_memory=*/false});
  const ModulePtr model = module_from_config(
      R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816,
       "num_hidden_layers": 24, "num_attention_heads": 16})");
  model->train(false);
  if (std::string(std::getenv("ACCEL_BENCH")) == "bf16") model->to(at::kBFloat16, std::nullopt);
  const auto seconds = [&](bool together) {
    const auto begin = std::chrono::steady_clock::now();
    int64_t tokens = 0;
    ContinuousBatch batch(model, {});
    for (int64_t i = 0; i < 16; i++) {
      Tokens prompt = prompt_of(8 + i % 4 * 8, i);
      const int64_t count = 12 + i % 5 * 4;
      tokens += count;
      if (together)
        batch.add(prompt, most(count));
      else
        generate(*model, batch_of(prompt), {}, most(count));
    }
    Collected collected;
    run(batch, collected);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    std::printf("%s: %.1f tokens/s\n", together ? "together" : "one after the other",
                static_cast<double>(tokens) / taken.count());
    std::fflush(stdout);
    return taken.count();
  };
  const double together = seconds(true), alone = seconds(false);
  std::printf("ratio %.2f\n", alone / together);
}

}  // namespace continuous_batch_test
}  // namespace accel::nn
