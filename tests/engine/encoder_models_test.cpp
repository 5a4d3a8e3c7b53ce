// SPDX-License-Identifier: Apache-2.0
// BERT, RoBERTa and DistilBERT with their heads against transformers, with weights that a formula gives.
#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include "architecture_fixture.hpp"
#include "nn/architectures/sentence_embedding.hpp"
#include "nn/module_chain.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace encoder_models_test {

using tests::expect_error;

Inputs inputs_of(const Module& model, const Json& recorded) {
  Inputs inputs;
  for (const std::string& name : model.input_names()) {
    const Json* const rows = json_member(*json_member(recorded, "inputs"), name);
    inputs.push_back(rows == nullptr ? c10::IValue() : c10::IValue(tests::tokens_of(*rows)));
  }
  return inputs;
}

std::vector<at::Tensor> tensors_of(const c10::IValue& output) {
  if (output.isTensor()) return {output.toTensor()};
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& item : tree::sequence_items(output)) tensors.push_back(item.toTensor());
  return tensors;
}

// A tied parameter may be recorded under another of its names; transformers does not tie the bias of an untied
// decoder.
const Json* gradient_of(const Json& gradients, const Module& model, const at::Tensor& parameter) {
  for (const auto& [name, tensor] : model.state_dict())
    if (tensor.is_alias_of(parameter))
      if (const Json* const entry = json_member(gradients, name); entry != nullptr) return entry;
  return nullptr;
}

TEST(EncoderModels, GiveTheOutputsAndGradientsOfTheReference) {
  const Json fixture = tests::read_fixture("encoders.json");
  for (const Json& recorded : *fixture.items()) {
    SCOPED_TRACE(print_json(*json_member(recorded, "config")));
    const ModulePtr model = tests::recorded_model(recorded, 2);
    tests::expect_recorded_state(*model, recorded);
    const std::vector<at::Tensor> outputs = tensors_of(model->call(inputs_of(*model, recorded)));
    const Json::Items& expected = *json_member(recorded, "outputs")->items();
    ASSERT_EQ(outputs.size(), expected.size());
    at::Tensor loss;
    for (size_t i = 0; i < outputs.size(); i++) {
      EXPECT_EQ(outputs[i].sizes().vec(), tests::integers(*json_member(expected[i], "shape")));
      tests::expect_close(outputs[i], tests::tensor_of(*json_member(expected[i], "values")), 1e-5);
      const at::Tensor part = (outputs[i] * tests::pattern_tensor(outputs[i].sizes(), static_cast<int64_t>(i))).sum();
      loss = loss.defined() ? loss + part : part;
    }
    EXPECT_NEAR(loss.item<double>(), json_number(recorded, "loss", 0), 1e-4);
    loss.backward();
    const Json& gradients = *json_member(recorded, "gradients");
    for (const auto& [name, tensor] : named_parameters(*model)) {
      const Json* const entry = gradient_of(gradients, *model, tensor);
      ASSERT_EQ(entry != nullptr, tensor.grad().defined()) << name;
      if (entry == nullptr) continue;
      const std::vector<double> numbers = tests::numbers(*entry);
      EXPECT_NEAR(tensor.grad().norm().item<double>(), numbers[0], 1e-4 + 1e-4 * numbers[0]) << name;
      EXPECT_NEAR(tensor.grad().flatten()[1].item<double>(), numbers[1], 1e-4 + 1e-5 * numbers[0]) << name;
    }
  }
}

TEST(EncoderModels, AreChainsOfParts) {
  const at::NoGradGuard no_grad;
  const Json fixture = tests::read_fixture("encoders.json");
  for (const Json& recorded : *fixture.items()) {
    SCOPED_TRACE(print_json(*json_member(recorded, "config")));
    const ModulePtr model = tests::recorded_model(recorded, 2);
    const Inputs inputs = inputs_of(*model, recorded);
    const ModuleChain chain = model->chain();
    ASSERT_EQ(chain.size(), 3);
    c10::IValue passed = c10::ivalue::Tuple::create(inputs);
    for (const ModulePart& part : chain) {
      for (const std::string& path : part.modules) EXPECT_NE(model->find(path), nullptr) << path;
      passed = part.call(passed);
    }
    const std::vector<at::Tensor> whole = tensors_of(model->call(inputs)), parts = tensors_of(passed);
    ASSERT_EQ(whole.size(), parts.size());
    for (size_t i = 0; i < whole.size(); i++) EXPECT_TRUE(at::equal(whole[i], parts[i]));
  }
}

// Padding must not change what the tokens become.
TEST(EncoderModels, PaddingIsNotSeen) {
  const at::NoGradGuard no_grad;
  for (const char* type : {"bert", "roberta", "distilbert"}) {
    SCOPED_TRACE(type);
    at::manual_seed(0);
    const ModulePtr model = module_from_config(
        text(R"({"model_type": ")", type,
             R"(", "vocab_size": 30, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
                 "intermediate_size": 8, "dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 8,
                 "pad_token_id": 1})"));
    model->train(false);
    const at::Tensor tokens = tests::tokens_of(parse_json("[[5, 6, 7]]", "")),
                     padded = tests::tokens_of(parse_json("[[5, 6, 7, 1, 1]]", ""));
    const at::Tensor alone = tensors_of(model->call(Inputs{tokens}))[0];
    const at::Tensor mask = tests::tokens_of(parse_json("[[1, 1, 1, 0, 0]]", ""));
    const at::Tensor beside = tensors_of(model->call(Inputs{padded, mask}))[0].slice(1, 0, 3);
    EXPECT_TRUE(at::allclose(alone, beside, 1e-5, 1e-6));
  }
}

at::Tensor pooled(const ModulePtr& encoder, SentencePooling pooling, bool normalizes, const Inputs& inputs) {
  return std::make_shared<SentenceEmbedding>(encoder, pooling, normalizes)->call(inputs).toTensor();
}

TEST(EncoderModels, HiddenStatesBecomeSentences) {
  const at::NoGradGuard no_grad;
  const Json fixture = tests::read_fixture("encoders.json");
  const Json& recorded = fixture.items()->front();
  const ModulePtr model = tests::recorded_model(recorded, 2);
  const Inputs inputs = inputs_of(*model, recorded);
  const at::Tensor hidden = tensors_of(model->call(inputs))[0];
  const at::Tensor second = hidden[1].slice(0, 0, 3);  // the others are padding
  const auto of_second = [&](SentencePooling pooling) { return pooled(model, pooling, false, inputs)[1]; };
  EXPECT_TRUE(at::allclose(of_second(SentencePooling::kMean), second.mean(0), 1e-5, 1e-6));
  EXPECT_TRUE(at::equal(of_second(SentencePooling::kFirst), second[0]));
  EXPECT_TRUE(at::equal(of_second(SentencePooling::kLast), second[2]));
  EXPECT_TRUE(at::equal(of_second(SentencePooling::kMax), second.amax(0)));
  const at::Tensor unit = pooled(model, SentencePooling::kMean, true, inputs);
  EXPECT_TRUE(at::allclose(unit.square().sum(1), at::ones({2})));
  EXPECT_TRUE(at::allclose(pooled(model, SentencePooling::kMean, false, {inputs[0]})[0],
                           tensors_of(model->call(Inputs{inputs[0]}))[0][0].mean(0), 1e-5, 1e-6));
  expect_error(Status::kInvalidArgument, "has no second input attention_mask",
               [] { SentenceEmbedding(std::make_shared<Module>("Other"), SentencePooling::kMean, true); });
}

TEST(EncoderModels, RefuseWhatTheyCannotDo) {
  const auto build = [](const char* settings) {
    return module_from_config(text(R"({"model_type": "bert", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1,
      "num_attention_heads": 2, "intermediate_size": 4, "max_position_embeddings": 4)",
                                   settings, "}"));
  };
  expect_error(Status::kUnsupported, "is_decoder is true", [&] { build(R"(, "is_decoder": true)"); });
  expect_error(Status::kUnsupported, "position_embedding_type is 'relative_key'",
               [&] { build(R"(, "position_embedding_type": "relative_key")"); });
  expect_error(Status::kUnsupported, "BertForPreTraining",
               [&] { build(R"(, "architectures": ["BertForPreTraining"])"); });
  expect_error(Status::kUnsupported, "expected a class of Bert", [&] { build(R"(, "architectures": ["GPT2Model"])"); });
  expect_error(Status::kInvalidArgument, "is not divisible by num_attention_heads 3",
               [] { module_from_config(R"({"model_type": "bert", "hidden_size": 8, "num_attention_heads": 3})"); });
  expect_error(Status::kUnsupported, "hidden_act 'none'", [&] { build(R"(, "hidden_act": "none")"); });
  expect_error(Status::kInvalidArgument, "hidden_dropout_prob", [&] { build(R"(, "hidden_dropout_prob": 2)"); });
  const ModulePtr model = build("");
  const at::Tensor tokens = at::ones({1, 5}, at::kLong);
  expect_error(Status::kShapeMismatch, "5 positions; expected at most 4", [&] { model->call(Inputs{tokens}); });
  expect_error(Status::kShapeMismatch, "expected that of the token ids", [&] {
    model->call(Inputs{tokens.slice(1, 0, 3), tokens.slice(1, 0, 2)});
  });
}

}  // namespace encoder_models_test
}  // namespace accel::nn
