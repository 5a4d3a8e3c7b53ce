// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts, GPT-NeoX, Phi, StableLM, and GPT-2 with padding, against transformers: logits, router losses,
// gradients, tokens, and the names in files.
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <map>

#include "architecture_fixture.hpp"
#include "bigmodel/load_and_dispatch.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/generation/generate.hpp"
#include "nn/module_chain.hpp"
#include "nn/module_walks.hpp"
#include "report/temporary_folder.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace more_decoders_test {

using tests::expect_error;
using tests::TemporaryFolder;

ModulePtr model_of(const Json& recorded) {
  ModulePtr model = module_from_config(print_json(*json_member(recorded, "config")));
  model->train(false);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : named_parameters(*model))
    tensor.copy_(tests::weight_of(name, tensor.sizes(), json_integer(recorded, "seed", 0)));
  return model;
}

at::Tensor input_of(const Json& recorded, const char* name) {
  const Json* const rows = json_member(*json_member(recorded, "inputs"), name);
  return rows == nullptr ? at::Tensor() : tests::tokens_of(*rows);
}

c10::IValue or_none(const at::Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); }

Inputs inputs_of(const Json& recorded) {
  return {input_of(recorded, "input_ids"), c10::IValue(), or_none(input_of(recorded, "attention_mask")),
          or_none(input_of(recorded, "position_ids"))};
}

at::Tensor without_padding(const at::Tensor& logits, const Json& recorded) {
  const at::Tensor mask = input_of(recorded, "attention_mask");
  return mask.defined() ? logits * mask.unsqueeze(-1) : logits;
}

template <typename Check>
void for_each_case(const Check& check) {
  const Json fixture = tests::read_cases("more_decoders.json");
  for (const Json& recorded : *fixture.items()) {
    SCOPED_TRACE(print_json(*json_member(recorded, "config")));
    check(recorded);
  }
}

TEST(MoreDecoders, GiveTheLogitsAndGradientsOfTheReference) {
  for_each_case([](const Json& recorded) {
    const ModulePtr model = model_of(recorded);
    std::map<std::string, std::vector<int64_t>> expected, found;
    for (const Json& entry : *json_member(recorded, "state_dict")->items())
      expected[*(*entry.items())[0].text()] = tests::integers((*entry.items())[1]);
    for (const auto& [name, tensor] : model->state_dict()) found[name] = tensor.sizes().vec();
    EXPECT_EQ(found, expected);
    const c10::IValue output = model->call(inputs_of(recorded));
    const bool has_router_loss = json_member(recorded, "router_loss") != nullptr;
    ASSERT_EQ(output.isTensor(), !has_router_loss);
    const at::Tensor logits =
        without_padding(has_router_loss ? tree::sequence_items(output)[0].toTensor() : output.toTensor(), recorded);
    tests::expect_close(logits, tests::tensor_of(*json_member(recorded, "logits")), 1e-5);
    at::Tensor loss =
        (logits * (at::arange(logits.numel(), at::kDouble) * 0.37).sin().to(at::kFloat).view_as(logits)).sum();
    if (has_router_loss) {
      const at::Tensor router_loss = tree::sequence_items(output)[1].toTensor();
      EXPECT_NEAR(router_loss.item<double>(), json_number(recorded, "router_loss", 0), 1e-5);
      loss = loss + 100 * router_loss;
    }
    EXPECT_NEAR(loss.item<double>(), json_number(recorded, "loss", 0), 2e-5);
    loss.backward();
    const Json& gradients = *json_member(recorded, "gradients");
    EXPECT_EQ(named_parameters(*model).size(), gradients.members()->size());
    for (const auto& [name, tensor] : named_parameters(*model)) {
      const std::vector<double> numbers = tests::numbers(*json_member(gradients, name));
      EXPECT_NEAR(tensor.grad().norm().item<double>(), numbers[0], 1e-5 + 1e-5 * numbers[0]) << name;
      EXPECT_NEAR(tensor.grad().flatten()[1 % tensor.numel()].item<double>(), numbers[1], 1e-5 + 1e-5 * numbers[0])
          << name;
    }
  });
}

TEST(MoreDecoders, GenerateTheTokensOfTheReference) {
  for_each_case([](const Json& recorded) {
    const Json* const expected = json_member(recorded, "generated");
    if (expected == nullptr) return;
    const at::Tensor tokens = input_of(recorded, "input_ids"), new_tokens = tests::tokens_of(*expected);
    GenerationSettings settings;
    settings.max_new_tokens = new_tokens.size(1);
    const Generated generated = generate(*model_of(recorded), tokens, input_of(recorded, "attention_mask"), settings);
    EXPECT_TRUE(at::equal(generated.tokens.slice(1, tokens.size(1)), new_tokens));
  });
}

TEST(MoreDecoders, EarlierTokensInPartsGiveTheSameLogits) {
  const at::NoGradGuard no_grad;
  for_each_case([](const Json& recorded) {
    const ModulePtr model = model_of(recorded);
    const Inputs whole = inputs_of(recorded);
    const int64_t length = whole[0].toTensor().size(1);
    std::vector<at::Tensor> logits;
    c10::IValue past = tree::new_list();
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, 2), {2, 3}, {3, length}}) {
      const auto part = [&, begin = begin, end = end](size_t input, bool from_start) {
        return whole[input].isTensor() ? c10::IValue(whole[input].toTensor().slice(1, from_start ? 0 : begin, end))
                                       : c10::IValue();
      };
      const c10::IValue output = model->call(Inputs{part(0, false), past, part(2, true), part(3, false)});
      logits.push_back(tree::sequence_items(output)[0].toTensor());
      past = tree::sequence_items(output)[1];
    }
    tests::expect_close(without_padding(at::cat(logits, 1), recorded),
                        tests::tensor_of(*json_member(recorded, "logits")), 2e-5);
  });
}

TEST(MoreDecoders, AreChainsOfParts) {
  for_each_case([](const Json& recorded) {
    const ModulePtr model = model_of(recorded);
    const Inputs inputs = inputs_of(recorded);
    c10::IValue passed = c10::ivalue::Tuple::create(inputs);
    for (const ModulePart& part : model->chain()) {
      for (const std::string& path : part.modules) EXPECT_NE(model->find(path), nullptr) << path;
      passed = part.call(passed);
    }
    const auto first = [](const c10::IValue& output) {
      return output.isTensor() ? output.toTensor() : tree::sequence_items(output)[0].toTensor();
    };
    EXPECT_TRUE(at::allclose(first(passed), first(model->call(inputs)), 1e-6, 1e-6));
    if (passed.isTensor()) return;
    EXPECT_NEAR(tree::sequence_items(passed)[1].toTensor().item<double>(), json_number(recorded, "router_loss", 0),
                1e-5);
  });
}

std::map<std::string, at::Tensor> files_of(const Module& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : HubNames(model).to_files(model.state_dict())) tensors.emplace(name, tensor);
  return tensors;
}

TEST(MoreDecoders, FilesHaveAMatrixOfEachExpert) {
  for_each_case([](const Json& recorded) {
    const std::string type = json_text(*json_member(recorded, "config"), "model_type", "");
    if (type.find("mo") == std::string::npos && type != "mixtral") return;
    const ModulePtr model = model_of(recorded);
    const std::map<std::string, at::Tensor> files = files_of(*model);
    for (const auto& [name, tensor] : files) EXPECT_EQ(name.find("experts.gate_up_proj"), std::string::npos) << name;
    const bool is_mixtral = type == "mixtral";
    std::string layer;
    for (const auto& [path, module] : named_modules(*model))
      if (module->kind() == "MixtureOfExperts") layer = path.substr(0, path.rfind('.'));
    const std::string base = layer + (is_mixtral ? ".block_sparse_moe." : ".mlp.");
    const at::Tensor gate_up = find_tensor(*model, layer + ".mlp.experts.gate_up_proj");
    const int64_t rows = gate_up.size(1) / 2;
    EXPECT_TRUE(files.at(base + "experts.2." + (is_mixtral ? "w1" : "gate_proj") + ".weight")
                    .equal(gate_up[2].narrow(0, 0, rows)));
    EXPECT_TRUE(files.at(base + "experts.2." + (is_mixtral ? "w3" : "up_proj") + ".weight")
                    .equal(gate_up[2].narrow(0, rows, rows)));
    EXPECT_TRUE(files.at(base + "experts.1." + (is_mixtral ? "w2" : "down_proj") + ".weight")
                    .equal(find_tensor(*model, layer + ".mlp.experts.down_proj")[1]));
    EXPECT_EQ(files.count(base + "gate.weight"), 1);
  });
}

TEST(MoreDecoders, ReadTheirFilesBack) {
  const TemporaryFolder folder;
  int number = 0;
  for_each_case([&](const Json& recorded) {
    const ModulePtr model = model_of(recorded);
    const std::string path = folder.path(text("model", number++));
    checkpoint::save_model(path, HubNames(*model).to_files(model->state_dict()));
    for (const bool maps_weights : {false, true}) {
      const ModulePtr other = module_from_config(print_json(*json_member(recorded, "config")));
      DispatchSettings settings;
      settings.map_weights = maps_weights;
      settings.strict = true;
      const LoadReport report =
          bigmodel::load_checkpoint_in_model(*other, checkpoint::load_state_dict(path), nullptr, settings);
      EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
      const NamedTensors expected = model->state_dict(), loaded = other->state_dict();
      for (size_t i = 0; i < expected.size(); i++)
        EXPECT_TRUE(loaded[i].second.equal(expected[i].second)) << expected[i].first;
    }
    // The names of the model are read, too.
    const ModulePtr other = module_from_config(print_json(*json_member(recorded, "config")));
    bigmodel::load_checkpoint_in_model(*other, model->state_dict(), nullptr, {});
    EXPECT_TRUE(other->state_dict().back().second.equal(model->state_dict().back().second));
  });
}

ModulePtr tiny(const char* type, const char* settings = "") {
  return module_from_config(text(R"({"model_type": ")", type, R"(", "vocab_size": 9, "hidden_size": 8,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 4)",
                                 settings, "}"));
}

TEST(MoreDecoders, IncompleteFilesAreRefused) {
  const ModulePtr model = tiny("mixtral", R"(, "num_local_experts": 2)");
  NamedTensors files = HubNames(*model).to_files(model->state_dict());
  const auto load = [&](const NamedTensors& weights) {
    bigmodel::load_checkpoint_in_model(*tiny("mixtral", R"(, "num_local_experts": 2)"), weights, nullptr, {});
  };
  NamedTensors wrong = files;
  for (auto& [name, tensor] : wrong)
    if (name == "model.layers.1.block_sparse_moe.experts.1.w2.weight") tensor = at::ones({8, 5});
  expect_error(Status::kShapeMismatch, "experts.1.w2.weight [8, 5] instead of [8, 4]", [&] { load(wrong); });
  for (size_t i = 0; i < files.size(); i++)
    if (files[i].first == "model.layers.0.block_sparse_moe.experts.1.w3.weight")
      files.erase(files.begin() + static_cast<std::ptrdiff_t>(i--));
  expect_error(Status::kNotFound, "the checkpoint lacks 'model.layers.0.block_sparse_moe.experts.1.w3.weight'",
               [&] { load(files); });
}

TEST(MoreDecoders, RefuseWhatTheyCannotDo) {
  expect_error(Status::kUnsupported, "router_jitter_noise is 0.1",
               [] { tiny("mixtral", R"(, "router_jitter_noise": 0.1)"); });
  expect_error(Status::kInvalidArgument, "experts_per_token is 3",
               [] { tiny("mixtral", R"(, "num_local_experts": 2, "num_experts_per_tok": 3)"); });
  expect_error(Status::kInvalidArgument, "decoder_sparse_step is 0",
               [] { tiny("qwen2_moe", R"(, "decoder_sparse_step": 0)"); });
  expect_error(Status::kTypeMismatch, "mlp_only_layers is 1", [] { tiny("qwen2_moe", R"(, "mlp_only_layers": 1)"); });
  expect_error(Status::kTypeMismatch, "mlp_only_layers has \"a\"",
               [] { tiny("qwen3_moe", R"(, "head_dim": 4, "mlp_only_layers": ["a"])"); });
  expect_error(Status::kUnsupported, "qk_layernorm is true", [] { tiny("stablelm", R"(, "qk_layernorm": true)"); });
  expect_error(Status::kUnsupported, "expected silu", [] { tiny("mixtral", R"(, "hidden_act": "gelu")"); });
  expect_error(Status::kUnsupported, "num_key_value_heads is 1",
               [] { module_from_config(R"({"model_type": "gpt_neox", "num_key_value_heads": 1})"); });
}

// Dropouts act in training, and there alone.
TEST(MoreDecoders, HaveDropouts) {
  const at::Tensor tokens = at::ones({1, 3}, at::kLong);
  const std::map<std::string, const char*> families = {
      {"gpt_neox", R"(, "hidden_dropout": 0.5, "rotary_pct": 0.5)"},
      {"phi", R"(, "resid_pdrop": 0.5, "embd_pdrop": 0.5)"},
      {"phi3", R"(, "resid_pdrop": 0.5)"},
      {"stablelm", R"(, "hidden_dropout": 0.5, "partial_rotary_factor": 0.5)"}};
  for (const auto& [type, settings] : families) {
    SCOPED_TRACE(type);
    const ModulePtr model = tiny(type.c_str(), settings);
    model->train(true);
    EXPECT_FALSE(at::allclose(model->call(tokens), model->call(tokens)));
    model->train(false);
    EXPECT_TRUE(at::equal(model->call(tokens), model->call(tokens)));
  }
}

}  // namespace more_decoders_test
}  // namespace accel::nn
