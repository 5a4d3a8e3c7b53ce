// SPDX-License-Identifier: Apache-2.0
// Llama's relatives against transformers, with weights that a formula gives: kinds of rotary positions, windows, caps,
// norms, and padding on both sides.
#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include "architecture_fixture.hpp"
#include "nn/module_chain.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace decoder_models_test {

using tests::expect_error;

at::Tensor input_of(const Json& recorded, const char* name) {
  const Json* const rows = json_member(*json_member(recorded, "inputs"), name);
  return rows == nullptr ? at::Tensor() : tests::tokens_of(*rows);
}

c10::IValue or_none(const at::Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); }

Inputs inputs_of(const Json& recorded) {
  return {input_of(recorded, "input_ids"), c10::IValue(), or_none(input_of(recorded, "attention_mask")),
          or_none(input_of(recorded, "position_ids"))};
}

// Padding may give anything.
at::Tensor without_padding(const at::Tensor& logits, const at::Tensor& mask) {
  return mask.defined() ? logits * mask.unsqueeze(-1) : logits;
}

TEST(DecoderModels, GiveTheLogitsAndGradientsOfTheReference) {
  const Json fixture = tests::read_fixture("decoders.json");
  for (const Json& recorded : *fixture.items()) {
    SCOPED_TRACE(print_json(*json_member(recorded, "config")));
    const ModulePtr model = tests::recorded_model(recorded, 4);
    tests::expect_recorded_state(*model, recorded);
    const Inputs inputs = inputs_of(recorded);
    const at::Tensor mask = input_of(recorded, "attention_mask");
    const at::Tensor logits = without_padding(model->call(inputs).toTensor(), mask);
    tests::expect_close(logits, tests::tensor_of(*json_member(recorded, "logits")), 2e-5);
    const at::Tensor loss = (logits * tests::pattern_tensor(logits.sizes(), 0)).sum();
    EXPECT_NEAR(loss.item<double>(), json_number(recorded, "loss", 0), 1e-4);
    loss.backward();
    const Json& gradients = *json_member(recorded, "gradients");
    EXPECT_EQ(named_parameters(*model).size(), gradients.members()->size());
    for (const auto& [name, tensor] : named_parameters(*model)) {
      const std::vector<double> numbers = tests::numbers(*json_member(gradients, name));
      EXPECT_NEAR(tensor.grad().norm().item<double>(), numbers[0], 1e-4 + 1e-4 * numbers[0]) << name;
      EXPECT_NEAR(tensor.grad().flatten()[1].item<double>(), numbers[1], 1e-4 + 1e-5 * numbers[0]) << name;
    }
  }
}

TEST(DecoderModels, EarlierTokensInPartsGiveTheSameLogits) {
  const at::NoGradGuard no_grad;
  const Json fixture = tests::read_fixture("decoders.json");
  for (const Json& recorded : *fixture.items()) {
    const std::string config = print_json(*json_member(recorded, "config"));
    if (config.find("dynamic") != std::string::npos || config.find("longrope") != std::string::npos)
      continue;  // earlier tokens were turned by the frequencies of a shorter call
    SCOPED_TRACE(config);
    const ModulePtr model = tests::recorded_model(recorded, 4);
    const at::Tensor tokens = input_of(recorded, "input_ids"), mask = input_of(recorded, "attention_mask"),
                     positions = input_of(recorded, "position_ids");
    std::vector<at::Tensor> logits;
    c10::IValue past = tree::new_list();
    for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 3), std::pair(3, 9)}) {
      const auto part = [begin = begin, end = end](const at::Tensor& whole, bool from_start) {
        return whole.defined() ? c10::IValue(whole.slice(1, from_start ? 0 : begin, end)) : c10::IValue();
      };
      const c10::IValue output =
          model->call(Inputs{part(tokens, false), past, part(mask, true), part(positions, false)});
      logits.push_back(tree::sequence_items(output)[0].toTensor());
      past = tree::sequence_items(output)[1];
    }
    EXPECT_TRUE(at::allclose(without_padding(at::cat(logits, 1), mask),
                             without_padding(model->call(inputs_of(recorded)).toTensor(), mask), 1e-4, 1e-5));
  }
}

TEST(DecoderModels, AreChainsOfParts) {
  const at::NoGradGuard no_grad;
  const Json fixture = tests::read_fixture("decoders.json");
  for (const Json& recorded : *fixture.items()) {
    SCOPED_TRACE(print_json(*json_member(recorded, "config")));
    const ModulePtr model = tests::recorded_model(recorded, 4);
    const Inputs inputs = inputs_of(recorded);
    c10::IValue passed = c10::ivalue::Tuple::create(inputs);
    for (const ModulePart& part : model->chain()) {
      for (const std::string& path : part.modules) EXPECT_NE(model->find(path), nullptr) << path;
      passed = part.call(passed);
    }
    EXPECT_TRUE(at::allclose(passed.toTensor(), model->call(inputs).toTensor(), 1e-6, 1e-6));
  }
}

TEST(DecoderModels, RefuseWhatTheyCannotDo) {
  const auto build = [](const char* type, const char* settings) {
    return module_from_config(text(R"({"model_type": ")", type, R"(", "vocab_size": 9, "hidden_size": 8,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 4)",
                                   settings, "}"));
  };
  expect_error(Status::kUnsupported, "expected one of llama, mistral",
               [] { module_from_config(R"({"model_type": "falcon"})"); });
  expect_error(Status::kUnsupported, "architectures is",
               [&] { build("qwen2", R"(, "architectures": ["Qwen2ForSequenceClassification"])"); });
  expect_error(Status::kInvalidArgument, "layer_types has 1 entries",
               [&] { build("qwen3", R"(, "sliding_window": 2, "layer_types": ["full_attention"])"); });
  expect_error(Status::kUnsupported, "expected \"full_attention\"",
               [&] { build("qwen3", R"(, "sliding_window": 2, "layer_types": ["full_attention", "chunked"])"); });
  expect_error(Status::kInvalidArgument, "sliding_window is 0", [&] { build("mistral", R"(, "sliding_window": 0)"); });
  expect_error(Status::kInvalidArgument, "final_logit_softcapping is -1",
               [&] { build("gemma2", R"(, "final_logit_softcapping": -1)"); });
  expect_error(Status::kInvalidArgument, "query_pre_attn_scalar is 0",
               [&] { build("gemma2", R"(, "query_pre_attn_scalar": 0)"); });
  expect_error(Status::kInvalidArgument, "resid_pdrop", [&] { build("phi3", R"(, "resid_pdrop": 1.5)"); });
  expect_error(Status::kUnsupported, "rope_type 'other'",
               [&] { build("llama", R"(, "rope_scaling": {"type": "other", "factor": 2})"); });
  expect_error(Status::kInvalidArgument, "short_factor is missing",
               [&] { build("phi3", R"(, "rope_scaling": {"type": "longrope", "factor": 2})"); });
  expect_error(Status::kInvalidArgument, "partial_rotary_factor is 2",
               [&] { build("llama", R"(, "partial_rotary_factor": 2)"); });
  expect_error(Status::kInvalidArgument, "3 features are turned",
               [&] { build("llama", R"(, "partial_rotary_factor": 0.75)"); });
  const ModulePtr model = build("llama", "");
  const at::Tensor tokens = at::ones({1, 4}, at::kLong);
  expect_error(Status::kShapeMismatch, "attention_mask is of shape [1, 3]; expected a tensor [1, 4]", [&] {
    model->call(Inputs{tokens, c10::IValue(), tokens.slice(1, 0, 3)});
  });
  expect_error(Status::kShapeMismatch, "position_ids is a", [&] {
    model->call(Inputs{tokens, c10::IValue(), c10::IValue(), 3});
  });
}

}  // namespace decoder_models_test
}  // namespace accel::nn
