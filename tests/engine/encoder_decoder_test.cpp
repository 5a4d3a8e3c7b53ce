// SPDX-License-Identifier: Apache-2.0
// T5, BART, mBART and Whisper against transformers, with weights that a formula gives.
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/index.h>
#include <ATen/ops/ones.h>

#include "architecture_fixture.hpp"
#include "nn/generation/generate.hpp"
#include "nn/module_walks.hpp"
#include "nn/recompute/activation_checkpointing.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace encoder_decoder_test {

using tests::expect_error;

std::string model_type_of(const Json& recorded) {
  return json_text(*json_member(recorded, "config"), "model_type", "");
}

bool is_speech(const Json& recorded) { return model_type_of(recorded) == "whisper"; }

std::string layers_of(const Json& recorded) {
  const std::string type = model_type_of(recorded);
  if (type == "t5") return "T5Block";
  const std::string prefix = type == "whisper" ? "Whisper" : type == "bart" ? "Bart" : "MBart";
  return prefix + "EncoderLayer," + prefix + "DecoderLayer";
}

bool has_decoder(const Json& recorded) { return json_member(recorded, "decoder") != nullptr; }

// The encoder's input and its mask.
std::pair<at::Tensor, at::Tensor> source_of(const Json& recorded) {
  if (const Json* const inputs = json_member(recorded, "inputs"))
    return {tests::tokens_of(*json_member(*inputs, "input_ids")),
            tests::tokens_of(*json_member(*inputs, "attention_mask"))};
  const Json& config = *json_member(recorded, "config");
  const int64_t mels = json_integer(config, "num_mel_bins", 0),
                frames = 2 * json_integer(config, "max_source_positions", 0);
  return {4 * tests::pattern_tensor({2, mels, frames}, 5), {}};
}

c10::IValue some(const at::Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); }

struct Decoder {
  at::Tensor tokens, mask, labels;
};
Decoder decoder_of(const Json& recorded) {
  const Json::Items& rows = *json_member(recorded, "decoder")->items();
  return {tests::tokens_of(rows[0]), tests::tokens_of(rows[1]), tests::tokens_of(rows[2])};
}

Inputs inputs_of(const Json& recorded) {
  const auto [input, mask] = source_of(recorded);
  Inputs inputs{input, some(mask)};
  if (has_decoder(recorded)) inputs.insert(inputs.end(), {decoder_of(recorded).tokens, decoder_of(recorded).mask});
  return inputs;
}

at::Tensor loss_of(const at::Tensor& output, const Json& recorded) {
  if (!has_decoder(recorded)) return (output * tests::pattern_tensor(output.sizes(), 0)).sum();
  return at::cross_entropy_loss(output.flatten(0, 1), decoder_of(recorded).labels.flatten());
}

// Without the places of the decoder that are padding, where any number is right.
at::Tensor of_tokens(const at::Tensor& numbers, const Json& recorded) {
  if (!has_decoder(recorded)) return numbers.flatten();
  const at::Tensor mask = decoder_of(recorded).mask.to(at::kBool);
  return numbers.reshape({mask.size(0), mask.size(1), -1}).index({mask}).flatten();
}

const Json* gradient_of(const Json& gradients, const Module& model, const at::Tensor& parameter) {
  for (const auto& [name, tensor] : model.state_dict())
    if (tensor.is_alias_of(parameter))
      if (const Json* const entry = json_member(gradients, name); entry != nullptr) return entry;
  return nullptr;
}

template <typename Check>
void for_each(const Check& check) {
  for (const char* const name : {"encoder_decoders.json", "barts.json"}) {
    const Json fixture = tests::read_fixture(name);
    for (const Json& recorded : *fixture.items()) {
      SCOPED_TRACE(print_json(*json_member(recorded, "config")));
      check(recorded, tests::recorded_model(recorded, 2));
    }
  }
}

void expect_gradients(const Json& recorded, const Module& model) {
  const Json& gradients = *json_member(recorded, "gradients");
  size_t compared = 0;
  for (const auto& [name, tensor] : named_parameters(model)) {
    const Json* const entry = gradient_of(gradients, model, tensor);
    ASSERT_EQ(entry != nullptr, tensor.grad().defined()) << name;
    if (entry == nullptr) continue;
    compared++;
    const std::vector<double> expected = tests::numbers(*entry);
    EXPECT_NEAR(tensor.grad().norm().item<double>(), expected[0], 1e-5 + 1e-4 * expected[0]) << name;
    EXPECT_NEAR(tensor.grad().flatten()[1].item<double>(), expected[1], 1e-5 + 1e-5 * expected[0]) << name;
  }
  EXPECT_EQ(compared, gradients.members()->size());
}

TEST(EncoderDecoders, GiveTheOutputsAndGradientsOfTheReference) {
  for_each([](const Json& recorded, const ModulePtr& model) {
    tests::expect_recorded_state(*model, recorded);
    const at::Tensor output = model->call(inputs_of(recorded)).toTensor();
    tests::expect_close(of_tokens(output, recorded),
                        of_tokens(tests::tensor_of(*json_member(recorded, "logits")), recorded), 1e-5);
    const at::Tensor loss = loss_of(output, recorded);
    EXPECT_NEAR(loss.item<double>(), json_number(recorded, "loss", 0), 1e-5);
    loss.backward();
    expect_gradients(recorded, *model);
  });
}

TEST(EncoderDecoders, AreCloseInBfloat16) {
  const at::NoGradGuard no_grad;
  for_each([](const Json& recorded, const ModulePtr& model) {
    model->to(at::kBFloat16, std::nullopt);
    Inputs inputs = inputs_of(recorded);
    if (is_speech(recorded)) inputs[0] = inputs[0].toTensor().to(at::kBFloat16);
    const at::Tensor output = of_tokens(model->call(inputs).toTensor().to(at::kFloat), recorded);
    const at::Tensor expected = of_tokens(tests::tensor_of(*json_member(recorded, "bfloat16")), recorded);
    // Eight bits of the largest value, and what some sums differ by.
    EXPECT_LE((output - expected).abs().max().item<double>(), 0.02 * expected.abs().max().item<double>());
  });
}

TEST(EncoderDecoders, RecomputeTheirActivations) {
  for_each([](const Json& recorded, const ModulePtr& model) {
    ActivationCheckpointingSettings settings;
    settings.class_names = layers_of(recorded);
    checkpoint_activations(*model, settings);
    loss_of(model->call(inputs_of(recorded)).toTensor(), recorded).backward();
    expect_gradients(recorded, *model);
  });
}

TEST(EncoderDecoders, ContinueFromACache) {
  const at::NoGradGuard no_grad;
  for_each([](const Json& recorded, const ModulePtr& model) {
    if (!has_decoder(recorded)) return;
    Inputs inputs = inputs_of(recorded);
    inputs[3] = c10::IValue();
    const at::Tensor whole = model->call(inputs).toTensor(), tokens = inputs[2].toTensor();
    c10::IValue past = tree::new_list();
    for (int64_t begin = 0, length = 3; begin < tokens.size(1); begin += length, length = 1) {
      // The encoder's input is not needed behind the first call.
      const c10::IValue input = begin == 0 ? inputs[0] : c10::IValue();
      const c10::IValue output = model->call(Inputs{input, inputs[1], tokens.narrow(1, begin, length), {}, past});
      tests::expect_close(tree::sequence_items(output)[0].toTensor(), whole.narrow(1, begin, length), 1e-5);
      past = tree::sequence_items(output)[1];
    }
  });
}

TEST(EncoderDecoders, GenerateTheTokensOfTheReference) {
  for_each([](const Json& recorded, const ModulePtr& model) {
    if (!has_decoder(recorded)) return;
    const auto [input, mask] = source_of(recorded);
    GenerationSettings settings;
    settings.max_new_tokens = 8;
    settings.decoder_tokens = {2};
    const at::Tensor expected = tests::tokens_of(*json_member(recorded, "generated"));
    int64_t calls = 0;
    const ModulePtr encoder = model->find(model_type_of(recorded) == "t5" ? "encoder" : "model.encoder");
    const int64_t hook = encoder->hooks().add_pre_hook([&](Module&, const Inputs&) {
      calls++;
      return std::optional<Inputs>();
    });
    EXPECT_TRUE(at::equal(generate(*model, input, mask, settings).tokens, expected));
    EXPECT_EQ(calls, 1);
    encoder->hooks().remove_hook(hook);
    // A stop token ends a sequence, and a suppressed one does not come.
    const int64_t stop = expected[0][2].item<int64_t>(), length = expected[0][1].item<int64_t>() == stop ? 2 : 3;
    settings.stop_tokens = {stop};
    const at::Tensor first_mask = mask.defined() ? mask.slice(0, 0, 1) : mask;
    EXPECT_TRUE(at::equal(generate(*model, input.slice(0, 0, 1), first_mask, settings).tokens,
                          expected.slice(0, 0, 1).slice(1, 0, length)));
    settings.stop_tokens = {};
    settings.begin_suppress_tokens = {expected[0][1].item<int64_t>()};
    const at::Tensor other = generate(*model, input, mask, settings).tokens;
    EXPECT_NE(other[0][1].item<int64_t>(), expected[0][1].item<int64_t>());
    settings.suppress_tokens = {other[0][1].item<int64_t>(), 3};
    const at::Tensor without = generate(*model, input, mask, settings).tokens.slice(1, 1);
    EXPECT_FALSE(without.eq(3).any().item<bool>() || without.eq(settings.suppress_tokens[0]).any().item<bool>());
  });
}

TEST(EncoderDecoders, RejectWrongInputs) {
  for_each([](const Json& recorded, const ModulePtr& model) {
    if (!has_decoder(recorded)) return;
    const auto [input, mask] = source_of(recorded);
    GenerationSettings settings;
    const at::Tensor source = input, source_mask = mask;
    expect_error(Status::kInvalidArgument, "decoder_tokens is empty",
                 [&] { generate(*model, source, source_mask, settings); });
    settings.decoder_tokens = {2};
    settings.suppress_tokens = {13};
    expect_error(Status::kInvalidArgument, "expected one from 0 to 12",
                 [&] { generate(*model, source, source_mask, settings); });
    expect_error(Status::kTypeMismatch, "expected a tensor", [&] { model->call(Inputs{source, some(source_mask)}); });
    if (is_speech(recorded))
      expect_error(Status::kShapeMismatch, "pad or cut", [&] {
        model->call(Inputs{source.slice(2, 1), {}, at::ones({2, 1}, at::kLong)});
      });
    else
      expect_error(Status::kShapeMismatch, "attention_mask", [&] {
        model->call(Inputs{source, source_mask.slice(1, 1), at::ones({2, 1}, at::kLong)});
      });
    EXPECT_TRUE(model->chain().empty());
  });
  const auto refuse = [](Status status, const char* message, const char* config) {
    expect_error(status, message, [&] { module_from_config(config); });
  };
  refuse(Status::kUnsupported, "feed_forward_proj", R"({"model_type":"t5","feed_forward_proj":"gated-what"})");
  refuse(Status::kInvalidArgument, "buckets", R"({"model_type":"t5","relative_attention_num_buckets":3})");
  refuse(Status::kUnsupported, "float16", R"({"model_type":"t5","dtype":"float16"})");
  refuse(Status::kUnsupported, "architectures", R"({"model_type":"t5","architectures":["T5ForTokenClassification"]})");
  refuse(Status::kUnsupported, "layerdrop", R"({"model_type":"whisper","encoder_layerdrop":0.1})");
  refuse(Status::kUnsupported, "decoder_layerdrop", R"({"model_type":"bart","decoder_layerdrop":0.1})");
  refuse(Status::kUnsupported, "normalize_before", R"({"model_type":"bart","normalize_before":true})");
  refuse(Status::kUnsupported, "tie_word_embeddings", R"({"model_type":"mbart","tie_word_embeddings":false})");
  refuse(Status::kInvalidArgument, "pad_token_id is 9", R"({"model_type":"bart","vocab_size":9,"pad_token_id":9})");
  refuse(Status::kUnsupported, "expected BartForConditionalGeneration",
         R"({"model_type":"bart","architectures":["BartForQuestionAnswering"]})");
  refuse(Status::kUnsupported, "spec_augment", R"({"model_type":"whisper","apply_spec_augment":true})");
  refuse(Status::kInvalidArgument, "heads", R"({"model_type":"whisper","d_model":10,"decoder_attention_heads":4})");
}

TEST(EncoderDecoders, HavePositionsUpToTheLimit) {
  const Json fixture = tests::read_fixture("barts.json");
  const ModulePtr model = tests::recorded_model(fixture.items()->at(1), 2);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = at::ones({1, 9}, at::kLong), longer = at::ones({1, 10}, at::kLong);
  EXPECT_EQ(model->call(Inputs{tokens, {}, tokens}).toTensor().size(1), 9);
  expect_error(Status::kShapeMismatch,
               "BartEncoder was called with 10 positions; expected at most max_position_embeddings = 9", [&] {
                 model->call(Inputs{longer, {}, tokens});
               });
  expect_error(Status::kShapeMismatch, "BartDecoder was called with 10", [&] {
    model->call(Inputs{tokens, {}, longer});
  });
}

}  // namespace encoder_decoder_test
}  // namespace accel::nn
