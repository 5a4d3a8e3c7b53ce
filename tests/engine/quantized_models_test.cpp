// SPDX-License-Identifier: Apache-2.0
// Quantized models: tensors and products of bitsandbytes, every kind in memory and from files, and what is refused.
#include "nn/quantized/quantized_model.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "architecture_fixture.hpp"
#include "bigmodel/model_folder.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "expect_error.hpp"
#include "nn/adapters/adapters.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/conv1d.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/quantized/coded_product.hpp"
#include "nn/quantized/quantization_config.hpp"
#include "nn/quantized/quantized_layers.hpp"
#include "nn/quantized/quantized_matrix.hpp"
#include "os/replaced_file.hpp"
#include "report/temporary_folder.hpp"

namespace accel::nn {
namespace quantized_test {

using tests::expect_close;
using tests::expect_error;
using tests::TemporaryFolder;

constexpr const char* kLlama =
    R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":17,"hidden_size":64,)"
    R"("intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,)"
    R"("max_position_embeddings":32,"tie_word_embeddings":false})";

// As make_quantized_fixtures.py has it.
at::Tensor pattern(int64_t rows, int64_t columns, int64_t seed) {
  const at::Tensor index = at::arange(rows * columns, at::kLong) * 1103515245 + 12345 * (seed + 1);
  const at::Tensor numbers = index.remainder(int64_t{1} << 31).floor_divide(256).remainder(65536) - 32768;
  return (numbers.to(at::kDouble) / 8192).to(at::kFloat).reshape({rows, columns});
}

at::Tensor bytes_of(const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

at::Tensor tensor_in(const Json& entry) {
  const std::vector<int64_t> shape = tests::integers(*json_member(entry, "shape"));
  if (const Json* const values = json_member(entry, "values"))
    return tests::tensor_of(*values).to(at::kFloat).reshape(shape);
  const at::Tensor bytes = bytes_of(tests::bytes_of(*json_member(entry, "bytes")));
  return (json_text(entry, "dtype", "") == "int8" ? bytes.view(at::kChar) : bytes).reshape(shape);
}

std::string text_of(const at::Tensor& bytes) {
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())};
}

at::ScalarType dtype_of(const Json& recorded) {
  return json_text(recorded, "dtype", "") == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

QuantizationOptions options_of(const std::string& kind) {
  QuantizationOptions options;
  options.kind = kind;
  options.skip_modules = std::vector<std::string>();
  return options;
}

QuantizationOptions options_of(const Json& recorded) {
  QuantizationOptions options = options_of(json_text(recorded, "kind", ""));
  options.group = json_integer(recorded, "block", 0);
  options.has_double_quantization = json_flag(recorded, "nested", false);
  options.outlier_threshold = json_number(recorded, "threshold", 6);
  return options;
}

at::Tensor recorded_weight(const Json& recorded) {
  const int64_t block = json_integer(recorded, "block", 0);
  const at::Tensor weight =
      pattern(json_integer(recorded, "rows", 0), json_integer(recorded, "columns", 0), block > 0 ? 1 : 4);
  if (block > 0) weight.view(-1).slice(0, block, 2 * block).zero_();
  // They round weights to float16 before int8.
  return block > 0 ? weight.to(dtype_of(recorded)) : weight.to(at::kHalf).to(at::kFloat);
}

// Codes of fp4 with one code for 0: theirs have a sign.
at::Tensor with_one_zero(const at::Tensor& codes) {
  const at::Tensor high = codes.floor_divide(16), low = codes.remainder(16);
  return high.masked_fill(high.eq(8), 0) * 16 + low.masked_fill(low.eq(8), 0);
}

at::Tensor recorded_inputs(const Json& recorded) {
  const at::Tensor inputs = pattern(3, json_integer(recorded, "columns", 0), 3);
  if (json_integer(recorded, "block", 0) > 0) return inputs;
  inputs[1][5] = 20;
  inputs[2][9] = -30;
  return inputs;
}

// Calls its children one after the other.
ModulePtr chain_of(const std::vector<std::pair<std::string, ModulePtr>>& layers) {
  const auto model = std::make_shared<CallbackModule>("Chain");
  for (const auto& [name, layer] : layers) model->add_child(name, layer);
  model->set_forward([](Module& self, const Inputs& inputs) -> c10::IValue {
    at::Tensor value = inputs[0].toTensor();
    for (const auto& [name, layer] : self.children()) value = layer->call(value);
    return value;
  });
  return model;
}

ModulePtr one_layer(const at::Tensor& weight, const at::Tensor& bias) {
  return chain_of({{"layer", std::make_shared<Linear>(weight.clone(), bias)}});
}

// The tensors of a model as files have them.
TensorsByName in_files(const Module& model) {
  const NamedTensors named = HubNames(model).to_files(model.state_dict());
  return {named.begin(), named.end()};
}

template <typename Check>
void for_each_case(const Check& check) {
  const Json fixture = tests::read_cases("quantized.json");
  for (const Json& recorded : *fixture.items()) {
    SCOPED_TRACE(json_text(recorded, "kind", "") + json_text(recorded, "quant_state", ""));
    check(recorded);
  }
}

class QuantizedModels : public testing::Test {
 protected:
  // LibTorch's own seed is another one in each process.
  void SetUp() override { at::manual_seed(1); }
};

TEST_F(QuantizedModels, HaveTheTensorsOfBitsandbytes) {
  for_each_case([](const Json& recorded) {
    const ModulePtr model = one_layer(recorded_weight(recorded), pattern(1, json_integer(recorded, "rows", 0), 2)[0]);
    EXPECT_EQ(quantize_model(*model, options_of(recorded)), std::vector<std::string>{"layer"});
    const TensorsByName files = in_files(*model);
    const auto& expected = *json_member(recorded, "state")->members();
    for (const auto& [name, entry] : expected) {
      const auto found = files.find("layer." + name);
      ASSERT_NE(found, files.end()) << name;
      const at::Tensor wanted = tensor_in(entry);
      ASSERT_EQ(found->second.sizes(), wanted.sizes()) << name;
      ASSERT_EQ(found->second.scalar_type(), wanted.scalar_type()) << name;
      if (name == "weight.nested_absmax") {  // less a mean that is summed in another order
        EXPECT_TRUE(at::allclose(found->second, wanted, 1e-6)) << name;
      } else if (name == "weight.absmax" && wanted.scalar_type() == at::kByte) {
        // Their search takes the second nearest of the values for a few scales.
        const at::Tensor apart = (found->second.to(at::kInt) - wanted.to(at::kInt)).abs();
        EXPECT_LE(apart.max().item<int>(), 1);
        EXPECT_LE(apart.sum().item<int64_t>() * 50, wanted.numel());
      } else if (name == "weight" && json_text(recorded, "kind", "") == "fp4") {
        EXPECT_TRUE(at::equal(with_one_zero(found->second), with_one_zero(wanted)));
      } else {
        EXPECT_TRUE(at::equal(found->second, wanted))
            << name << ": " << found->second.ne(wanted).sum().item<int64_t>() << " differ";
      }
    }
    const std::string state = json_text(recorded, "quant_state", "");
    EXPECT_EQ(files.size(), expected.size() + 1 + (state.empty() ? 0 : 1));
    if (state.empty()) return;
    const Json wanted = parse_json(state, "state");
    const Json found = parse_json(
        text_of(files.at("layer.weight.quant_state.bitsandbytes__" + json_text(recorded, "kind", ""))), "state");
    for (const auto& [key, value] : *wanted.members()) {
      ASSERT_NE(json_member(found, key), nullptr) << key;
      if (key == "nested_offset")
        EXPECT_NEAR(*json_member(found, key)->number(), *value.number(), 1e-6);
      else
        EXPECT_EQ(print_json(*json_member(found, key)), print_json(value)) << key;
    }
  });
}

TEST_F(QuantizedModels, GiveTheOutputsOfBitsandbytes) {
  const at::NoGradGuard no_grad;
  for_each_case([](const Json& recorded) {
    const int64_t rows = json_integer(recorded, "rows", 0), columns = json_integer(recorded, "columns", 0);
    NamedTensors files;
    for (const auto& [name, entry] : *json_member(recorded, "state")->members())
      files.emplace_back("layer." + name, tensor_in(entry));
    const std::string kind = json_text(recorded, "kind", ""), state = json_text(recorded, "quant_state", "");
    if (!state.empty()) files.emplace_back("layer.weight.quant_state.bitsandbytes__" + kind, bytes_of(state));
    const at::Tensor bias = pattern(1, rows, 2)[0];
    files.emplace_back("layer.bias", bias);
    const ModulePtr model = one_layer(at::zeros({rows, columns}), at::zeros({rows}));
    EXPECT_EQ(prepare_quantized(*model, files, make_quantized_kind(options_of(recorded))).size(), 1u);
    for (const auto& [name, tensor] : named_members(*model)) EXPECT_EQ(tensor.is_meta(), name != "layer.bias") << name;
    const TensorsByName given(files.begin(), files.end());
    const HubNames names(*model);
    for (const auto& [name, tensor] : named_members(*model)) {
      const auto parts = names.parts_of(name, tensor.sizes());
      const at::Tensor& file = given.at(parts.empty() ? name : parts[0].name);
      const_cast<Module&>(module_at(*model, "layer")).replace_tensor(name.substr(6), file);
    }
    if (!state.empty()) {
      const at::Tensor values = quantized_matrix(module_at(*model, "layer"))->values(dtype_of(recorded)).to(at::kFloat);
      const std::vector<double> sums = tests::numbers(*json_member(recorded, "dequantized"));
      EXPECT_NEAR(values.abs().sum().item<double>(), sums[0], 1e-4 * sums[0]);
      EXPECT_NEAR(values[rows - 1][columns - 1].item<double>(), sums[1], 1e-6);
    }
    const at::Tensor outputs = model->call(recorded_inputs(recorded)),
                     wanted = tensor_in(*json_member(recorded, "outputs"));
    // Theirs are in float16 or of weights in bfloat16, where the numbers are so.
    const bool is_exact = !state.empty() && dtype_of(recorded) == at::kFloat;
    EXPECT_LT((outputs - wanted).norm().item<double>(), (is_exact ? 1e-3 : 5e-3) * wanted.norm().item<double>());
  });
}

double relative_error(const at::Tensor& found, const at::Tensor& wanted) {
  return ((found - wanted).norm() / wanted.norm()).item<double>();
}

struct KindCase {
  const char* kind;
  double error;  // of outputs, relative to those of the numbers before
  double bits;   // of an element, with scales
  bool double_scales = false, offsets = false;
};
constexpr KindCase kKinds[] = {
    {"int8", 0.01, 8.3},        {"int8_dynamic", 0.02, 8.3},     {"llm_int8", 0.02, 8.3},
    {"nf4", 0.12, 4.6},         {"nf4", 0.12, 4.3, true},        {"fp4", 0.16, 4.6},
    {"int4", 0.12, 4.6},        {"int4", 0.1, 5.1, false, true}, {"float8_e4m3", 0.04, 8.3},
    {"float8_e5m2", 0.08, 8.3}, {"int8_grouped", 0.01, 8.6},     {"int8_grouped", 0.01, 9.1, false, true}};

QuantizationOptions options_of(const KindCase& each) {
  QuantizationOptions options = options_of(each.kind);
  options.has_double_quantization = each.double_scales;
  options.has_offsets = each.offsets;
  return options;
}

TEST_F(QuantizedModels, EachKindIsNearTheNumbersAndSmall) {
  for (const KindCase& each : kKinds) {
    SCOPED_TRACE(each.kind);
    const at::Tensor weight = at::randn({128, 256}) * 0.1, bias = at::randn({128});
    const ModulePtr model = one_layer(weight, bias);
    quantize_model(*model, options_of(each));
    at::Tensor input = at::randn({5, 256});
    input.set_requires_grad(true);
    const at::Tensor output = model->call(input);
    EXPECT_LT(relative_error(output, at::linear(input, weight, bias)), each.error);
    const auto& layer = dynamic_cast<const Linear&>(module_at(*model, "layer"));
    const at::Tensor decoded = layer.encoded()->values(at::kFloat);
    EXPECT_LT(relative_error(output, at::linear(input, decoded, bias)),
              std::string(each.kind).find("int8") == std::string::npos ? 2e-3 : 0.02);
    EXPECT_EQ(layer.in_features(), 256);
    EXPECT_EQ(layer.out_features(), 128);
    const at::Tensor gradient = at::randn({5, 128});
    output.backward(gradient);
    EXPECT_TRUE(at::allclose(input.grad(), gradient.mm(decoded), 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(layer.parameter(Projection::kBias).grad(), gradient.sum(0), 1e-4, 1e-5));
    EXPECT_THROW(at::Tensor(layer.parameter(Projection::kWeight)).set_requires_grad(true), c10::Error);
    double bytes = 0;
    for (const auto& [name, tensor] : named_members(*model))
      if (name != "layer.bias" && name.find("map") == std::string::npos && name.find("state") == std::string::npos)
        bytes += static_cast<double>(tensor.nbytes());
    EXPECT_LT(bytes * 8 / static_cast<double>(weight.numel()), each.bits);
  }
}

TEST_F(QuantizedModels, AreDecodedWithoutKernelsAlike) {
  for (const KindCase& each : kKinds)
    for (const int64_t columns : {128, 50, 33}) {
      SCOPED_TRACE(text(each.kind, ", ", columns, " columns"));
      const QuantizedTensors made =
          quantize_matrix(at::randn({6, columns}), make_quantized_kind(options_of(each)), "weight");
      const CodedMatrix matrix = decode_state(made.state, made.codes, made.buffers);
      const at::Tensor values = matrix.values(at::kFloat);
      EXPECT_TRUE(at::allclose(matrix.values_by_operators(), values, 1e-6, 1e-7));
      const at::Tensor indices = at::tensor({5, 0, 5}, at::kLong);
      EXPECT_TRUE(at::equal(matrix.rows(indices, at::kFloat), values.index_select(0, indices)));
      const at::Tensor input = at::randn({3, columns});
      const at::Tensor output = coded_product(matrix, made.state.kind, input, at::Tensor());
      EXPECT_LT(relative_error(output, input.mm(values.t())), 0.03);
    }
}

TEST_F(QuantizedModels, KeepTheirScalesWhenTheModelIsConverted) {
  const at::Tensor weight = at::randn({64, 128}) * 0.1;
  for (const KindCase& each : kKinds) {
    SCOPED_TRACE(each.kind);
    const ModulePtr model = one_layer(weight, at::randn({64}));
    quantize_model(*model, options_of(each));
    const at::NoGradGuard no_grad;
    const at::Tensor input = at::randn({3, 128}).to(at::kBFloat16), before = model->call(input.to(at::kFloat));
    model->to(at::kBFloat16, std::nullopt);
    for (const auto& [name, tensor] : named_members(*model))
      EXPECT_EQ(tensor.scalar_type() == at::kBFloat16, name == "layer.bias") << name;
    const at::Tensor after = model->call(input);
    EXPECT_EQ(after.scalar_type(), at::kBFloat16);
    EXPECT_LT(relative_error(after.to(at::kFloat), before), 0.02);
  }
}

TEST_F(QuantizedModels, LoadStateDictsOfTheirOwn) {
  for (const KindCase& each : kKinds) {
    SCOPED_TRACE(each.kind);
    const at::NoGradGuard no_grad;
    const ModulePtr model = one_layer(at::randn({64, 128}), at::randn({64}));
    const ModulePtr other = one_layer(at::randn({64, 128}) * 3, at::randn({64}));
    quantize_model(*model, options_of(each));
    quantize_model(*other, options_of(each));
    const at::Tensor input = at::randn({2, 128}), before = model->call(input);
    EXPECT_FALSE(at::equal(other->call(input), before));
    if (!each.double_scales) {  // the mean of scales has as many digits as it needs
      other->load_state_dict(model->state_dict());
      EXPECT_TRUE(at::equal(other->call(input), before));
    }
  }
}

TEST_F(QuantizedModels, TransposedLayersAndTables) {
  const at::NoGradGuard no_grad;
  for (const KindCase& each : kKinds) {
    SCOPED_TRACE(each.kind);
    QuantizationOptions options = options_of(each);
    options.embeddings = true;
    const at::Tensor table = at::randn({20, 128}), weight = at::randn({128, 64});
    const ModulePtr model = chain_of({{"table", std::make_shared<Embedding>(table.clone())},
                                      {"layer", std::make_shared<Conv1d>(weight.clone(), at::zeros({64}))}});
    EXPECT_EQ(quantize_model(*model, options), (std::vector<std::string>{"table", "layer"}));
    const at::Tensor tokens = at::tensor({3, 19, 0, 3}, at::kLong).view({2, 2});
    EXPECT_LT(
        relative_error(model->find("table")->call(tokens), table.index_select(0, tokens.view(-1)).view({2, 2, 128})),
        each.error);
    EXPECT_LT(relative_error(model->call(tokens), table.index_select(0, tokens.view(-1)).mm(weight).view({2, 2, 64})),
              2 * each.error);
    const auto& layer = dynamic_cast<const Conv1d&>(module_at(*model, "layer"));
    EXPECT_EQ(layer.in_features(), 128);
    EXPECT_EQ(layer.whole_weight().sizes(), weight.sizes());
    expect_error(Status::kInvalidArgument, "indices from -1 to 20", [&] {
      model->find("table")->call(at::tensor({-1, 20}, at::kLong));
    });
  }
}

TEST_F(QuantizedModels, KeepTheHeadAndNamedModules) {
  const ModulePtr model = module_from_config(kLlama);
  EXPECT_EQ(keys_not_to_convert(*model), std::vector<std::string>{"lm_head"});
  QuantizationOptions options;
  options.kind = "nf4";
  options.keep_in_fp32_modules = {"down_proj"};
  options.skip_modules = std::vector<std::string>{"lm_head", "model.layers.1"};
  options.dtype = at::kBFloat16;
  const std::vector<std::string> names = quantize_model(*model, options);
  EXPECT_EQ(names.size(), 6u);
  for (const std::string& name : names) EXPECT_EQ(name.rfind("model.layers.0.", 0), 0u) << name;
  EXPECT_EQ(quantized_layers(*model), names);
  EXPECT_EQ(find_tensor(*model, "model.layers.0.mlp.down_proj.weight").scalar_type(), at::kFloat);
  EXPECT_EQ(find_tensor(*model, "model.layers.1.mlp.up_proj.weight").scalar_type(), at::kBFloat16);
  EXPECT_EQ(find_tensor(*model, "model.layers.0.mlp.up_proj.weight_absmax").scalar_type(), at::kFloat);
  std::string tied = kLlama;
  tied.replace(tied.find("false"), 5, "true");
  const ModulePtr with_ties = module_from_config(tied);
  const std::vector<std::string> keys = keys_not_to_convert(*with_ties);
  EXPECT_NE(std::find(keys.begin(), keys.end(), "model.embed_tokens"), keys.end());
  EXPECT_NE(std::find(keys.begin(), keys.end(), "lm_head"), keys.end());
  expect_error(Status::kInvalidArgument, "is tied to", [&] { quantize_model(*with_ties, options_of("int8")); });
}

TEST_F(QuantizedModels, AdaptersAreTrainedOnTop) {
  for (const bool is_dora : {false, true}) {
    const ModulePtr model = module_from_config(kLlama);
    QuantizationOptions options;
    options.kind = "nf4";
    options.has_double_quantization = true;
    quantize_model(*model, options);
    LoraConfig config;
    config.targets.endings = {"q_proj", "down_proj"};
    config.shape.is_dora = is_dora;
    config.shape.dropout = 0.1;
    add_lora(*model, "mine", config);
    const at::Tensor tokens = at::tensor({1, 2, 3, 4}, at::kLong).view({1, 4});
    model->call(tokens).sum().backward();
    size_t trained = 0;
    for (const auto& [name, tensor] : named_parameters(*model)) {
      EXPECT_EQ(tensor.requires_grad(), name.find(".lora_") != std::string::npos) << name;
      if (tensor.requires_grad()) trained += tensor.grad().defined() ? 1 : 0;
    }
    EXPECT_EQ(trained, is_dora ? 12u : 8u);
  }
}

// A merged weight is quantized again, and an unmerged one has its former codes, bit for bit.
TEST_F(QuantizedModels, AdaptersAreMergedIntoCodes) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = at::tensor({1, 2, 3, 4}, at::kLong).view({1, 4});
  for (const KindCase& each : kKinds) {
    for (const bool is_dora : {false, true}) {
      SCOPED_TRACE(testing::Message() << each.kind << (is_dora ? " with DoRA" : ""));
      const ModulePtr model = module_from_config(kLlama);
      quantize_model(*model, options_of(each));
      const at::Tensor without = model->call(tokens);
      LoraConfig config;
      config.targets.endings = {"q_proj", "down_proj"};
      config.shape.is_dora = is_dora;
      config.shape.start = LoraStart::kRandom;
      add_lora(*model, "mine", config);
      const at::Tensor adapted = model->call(tokens);
      const at::Tensor codes = find_tensor(*model, "model.layers.0.self_attn.q_proj.weight").clone();
      merge_adapters(*model);
      EXPECT_FALSE(at::equal(codes, find_tensor(*model, "model.layers.0.self_attn.q_proj.weight")));
      const at::Tensor merged = model->call(tokens);
      EXPECT_LT((merged - adapted).norm().item().toDouble(), 0.5 * (adapted - without).norm().item().toDouble());
      unmerge_adapters(*model);
      EXPECT_TRUE(at::equal(codes, find_tensor(*model, "model.layers.0.self_attn.q_proj.weight")));
      EXPECT_TRUE(at::equal(adapted, model->call(tokens)));
      merge_adapters(*model);
      EXPECT_TRUE(at::equal(merged, model->call(tokens)));
    }
  }
}

TEST_F(QuantizedModels, QuantizeTheTensorsOfFilesOneByOne) {
  const at::NoGradGuard no_grad;
  for (const KindCase& each : kKinds) {
    SCOPED_TRACE(each.kind);
    const ModulePtr whole = module_from_config(kLlama), quantized = module_from_config(kLlama);
    QuantizationOptions options = options_of(each);
    options.skip_modules = std::nullopt;
    const NamedTensors files = whole->state_dict();
    const NamedTensors encoded = quantize_weights(*quantized, files, options);
    quantize_model(*whole, options);
    const TensorsByName expected = in_files(*whole);
    EXPECT_EQ(encoded.size(), expected.size());
    for (const auto& [name, tensor] : encoded) {
      ASSERT_EQ(expected.count(name), 1u) << name;
      EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
    }
    // Files that are quantized already prepare a model alike.
    const ModulePtr prepared = module_from_config(kLlama);
    EXPECT_EQ(prepare_quantized(*prepared, encoded, make_quantized_kind(options)), quantized_layers(*quantized));
  }
}

TEST_F(QuantizedModels, AreLoadedFromFoldersAndSaved) {
  const at::NoGradGuard no_grad;
  for (const KindCase& each : kKinds) {
    SCOPED_TRACE(each.kind);
    const TemporaryFolder folder, copy;
    const ModulePtr source = module_from_config(kLlama);
    source->train(false);
    replace_file(folder.path() + "/config.json", kLlama);
    checkpoint::save_safetensors(folder.path() + "/model.safetensors", source->state_dict(), {});
    QuantizationOptions options = options_of(each);
    options.skip_modules = std::nullopt;
    const ModulePtr loaded = bigmodel::load_model_folder(folder.path(), &options);
    loaded->train(false);
    quantize_model(*source, options);
    const at::Tensor tokens = at::tensor({1, 2, 3, 4}, at::kLong).view({1, 4});
    const at::Tensor before = source->call(tokens);
    EXPECT_TRUE(at::equal(loaded->call(tokens), before));
    checkpoint::save_safetensors(copy.path() + "/model.safetensors", HubNames(*loaded).to_files(loaded->state_dict()),
                                 {});
    bigmodel::copy_model_files(folder.path(), copy.path());
    bigmodel::write_quantization_config(copy.path(), *loaded);
    const ModulePtr again = bigmodel::load_model_folder(copy.path());
    again->train(false);
    EXPECT_EQ(quantized_layers(*again), quantized_layers(*loaded));
    EXPECT_TRUE(at::equal(again->call(tokens), before));
    expect_error(Status::kInvalidArgument, "has a quantization_config, and other options are given",
                 [&] { bigmodel::load_model_folder(copy.path(), &options); });
    // The configuration without the tensors, and the tensors without it.
    bigmodel::write_quantization_config(folder.path(), *loaded);
    expect_error(Status::kNotFound, "no weight of its files is quantized",
                 [&] { bigmodel::load_model_folder(folder.path()); });
    bigmodel::write_quantization_config(copy.path(), *module_from_config(kLlama));
    expect_error(Status::kInvalidArgument, "has quantized weights, as",
                 [&] { bigmodel::load_model_folder(copy.path()); });
  }
}

TEST_F(QuantizedModels, ReadTheConfigurationOfBitsandbytes) {
  const auto read = [](const std::string& quantization) {
    return read_quantization_config(parse_json("{\"quantization_config\":" + quantization + "}", "config.json"));
  };
  const auto of_4bit = read(
      R"({"_load_in_4bit":true,"_load_in_8bit":false,"bnb_4bit_compute_dtype":"bfloat16","bnb_4bit_quant_storage":)"
      R"("uint8","bnb_4bit_quant_type":"nf4","bnb_4bit_use_double_quant":true,"llm_int8_enable_fp32_cpu_offload":false,)"
      R"("llm_int8_has_fp16_weight":false,"llm_int8_skip_modules":["lm_head"],"llm_int8_threshold":6.0,)"
      R"("load_in_4bit":true,"load_in_8bit":false,"quant_method":"bitsandbytes"})");
  ASSERT_TRUE(of_4bit.has_value());
  EXPECT_EQ(of_4bit->kind, "nf4");
  EXPECT_TRUE(of_4bit->has_double_quantization);
  EXPECT_EQ(of_4bit->compute_dtype, at::kBFloat16);
  EXPECT_EQ(of_4bit->skip_modules, std::vector<std::string>{"lm_head"});
  const auto of_8bit = read(R"({"load_in_8bit":true,"llm_int8_threshold":4.5})");
  EXPECT_EQ(of_8bit->kind, "llm_int8");
  EXPECT_EQ(of_8bit->outlier_threshold, 4.5);
  EXPECT_FALSE(read(R"({"quant_method":"gptq","bits":4})").has_value());
  EXPECT_EQ(read(R"({"quant_method":"accel","kinds":["int8_grouped","int4"],"compute_dtype":"bfloat16"})")->kind,
            "int8_grouped");
  EXPECT_FALSE(read("{}").has_value());
  EXPECT_FALSE(read("null").has_value());
  expect_error(Status::kInvalidArgument, "expected one of them", [&] { read(R"({"quant_method":"bitsandbytes"})"); });
  expect_error(Status::kInvalidArgument, "expected one of them",
               [&] { read(R"({"load_in_4bit":true,"load_in_8bit":true})"); });
  expect_error(Status::kInvalidArgument, "expected fp4 or nf4",
               [&] { read(R"({"load_in_4bit":true,"bnb_4bit_quant_type":"int4"})"); });
  expect_error(Status::kUnsupported, "bnb_4bit_quant_storage",
               [&] { read(R"({"load_in_4bit":true,"bnb_4bit_quant_storage":"bfloat16"})"); });
  expect_error(Status::kUnsupported, "has surprise", [&] { read(R"({"load_in_4bit":true,"surprise":1})"); });
  expect_error(Status::kUnsupported, "llm_int8_has_fp16_weight",
               [&] { read(R"({"load_in_8bit":true,"llm_int8_has_fp16_weight":true})"); });
}

TEST_F(QuantizedModels, RefuseWhatTheyCannotDo) {
  const auto quantize = [](const QuantizationOptions& options, const at::Tensor& weight) {
    return quantize_model(*one_layer(weight, at::Tensor()), options);
  };
  const at::Tensor weight = at::randn({4, 64});
  QuantizationOptions options = options_of("int3");
  expect_error(Status::kInvalidArgument, "'int3'; expected one of", [&] { quantize(options, weight); });
  options = options_of("nf4");
  options.group = 48;
  expect_error(Status::kInvalidArgument, "group is 48", [&] { quantize(options, weight); });
  options = options_of("nf4");
  options.has_offsets = true;
  expect_error(Status::kInvalidArgument, "no offsets", [&] { quantize(options, weight); });
  options = options_of("int8");
  options.has_double_quantization = true;
  expect_error(Status::kInvalidArgument, "no double quantization", [&] { quantize(options, weight); });
  options = options_of("int8");
  options.skip_modules = std::vector<std::string>{"nothing"};
  expect_error(Status::kNotFound, "'nothing', which is no module", [&] { quantize(options, weight); });
  options.skip_modules = std::vector<std::string>{"layer"};
  expect_error(Status::kInvalidArgument, "no linear layer to quantize", [&] { quantize(options, weight); });
  for (const KindCase& each : kKinds)
    for (const double broken : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      const at::Tensor bad = weight.clone();
      bad[2][7] = broken;
      expect_error(Status::kInvalidArgument, "'layer.weight' has a NaN or an infinity in row",
                   [&] { quantize(options_of(each), bad); });
    }
  const ModulePtr twice = one_layer(weight, at::Tensor());
  quantize_model(*twice, options_of("int8"));
  expect_error(Status::kInvalidState, "quantized already", [&] { quantize_model(*twice, options_of("nf4")); });
  expect_error(Status::kShapeMismatch, "expected [..., 64]", [&] { twice->call(at::randn({2, 63})); });
  expect_error(Status::kUnsupported, "not split over ranks",
               [&] { dynamic_cast<Projection&>(*twice->find("layer")).set_split(nullptr); });
  const ModulePtr meta = one_layer(at::empty({4, 64}, at::TensorOptions().device(at::kMeta)), at::Tensor());
  expect_error(Status::kInvalidState, "has no memory", [&] { quantize_model(*meta, options_of("int8")); });
}

TEST_F(QuantizedModels, RefuseBrokenFiles) {
  const ModulePtr source = one_layer(at::randn({8, 64}), at::Tensor());
  QuantizationOptions options = options_of("nf4");
  options.has_double_quantization = true;
  const QuantizedKind kind = make_quantized_kind(options);
  quantize_model(*source, options);
  const NamedTensors good = HubNames(*source).to_files(source->state_dict());
  const std::string state_name = "layer.weight.quant_state.bitsandbytes__nf4";
  const auto expect_refusal = [&](const std::string& name, const at::Tensor& tensor, Status status, const char* words) {
    NamedTensors files;
    for (const auto& entry : good)
      if (entry.first != name) files.push_back(entry);
    if (tensor.defined()) files.emplace_back(name, tensor);
    const ModulePtr model = one_layer(at::randn({8, 64}), at::Tensor());
    expect_error(status, words, [&] { prepare_quantized(*model, files, kind); });
  };
  expect_refusal("layer.weight", at::zeros({100, 1}, at::kByte), Status::kShapeMismatch, "expected uint8 [256, 1]");
  expect_refusal("layer.weight.absmax", at::Tensor(), Status::kNotFound, "lack 'layer.weight.absmax'");
  expect_refusal("layer.weight.absmax", at::zeros({9}, at::kByte), Status::kShapeMismatch, "expected 8 numbers");
  expect_refusal("layer.weight.quant_map", at::zeros({16}), Status::kUnsupported, "other values for its codes");
  expect_refusal(state_name, bytes_of("{"), Status::kInvalidArgument, state_name.c_str());
  expect_refusal(state_name, bytes_of("[]"), Status::kInvalidArgument, "expected an object");
  expect_refusal(state_name, at::zeros({3}), Status::kInvalidArgument, "expected JSON as a row of bytes");
  expect_refusal(state_name, bytes_of(R"({"blocksize":64,"dtype":"float32","shape":[8]})"), Status::kInvalidArgument,
                 "expected two sizes");
  expect_refusal(state_name, bytes_of(R"({"quant_type":"fp4","blocksize":64,"dtype":"float32","shape":[8,64]})"),
                 Status::kInvalidArgument, "expected 'nf4'");
  expect_refusal(state_name, bytes_of(R"({"blocksize":5,"dtype":"float32","shape":[8,64]})"), Status::kInvalidArgument,
                 "group is 5");
  expect_refusal(state_name, bytes_of(R"({"blocksize":64,"dtype":"float32","shape":[8,64],"nested_blocksize":128})"),
                 Status::kUnsupported, "nested_blocksize 128");
  const ModulePtr narrow = one_layer(at::randn({4, 64}), at::Tensor());
  expect_error(Status::kShapeMismatch, "the weight of 'layer' is [4, 64]",
               [&] { prepare_quantized(*narrow, good, kind); });
}

}  // namespace quantized_test
}  // namespace accel::nn
