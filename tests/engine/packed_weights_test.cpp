// SPDX-License-Identifier: Apache-2.0
// Packed weights: layers and folders of GPTQ and AWQ beside the numbers that they stand for and the logits that
// transformers computes with these (make_packed_weights_fixtures.py).
#include "nn/quantized/packed_weights.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "architecture_fixture.hpp"
#include "bigmodel/load_and_dispatch.hpp"
#include "bigmodel/model_folder.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "expect_error.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/module_walks.hpp"
#include "nn/quantized/coded_product.hpp"
#include "nn/quantized/quantization_config.hpp"
#include "nn/quantized/quantized_matrix.hpp"
#include "nn/quantized/quantized_model.hpp"
#include "os/regular_file.hpp"
#include "os/replaced_file.hpp"
#include "report/temporary_folder.hpp"

namespace accel::nn {
namespace packed_weights_test {

using tests::expect_error;
using tests::TemporaryFolder;

at::Tensor recorded_tensor(const Json& entry) {
  const std::string bytes = tests::bytes_of(*json_member(entry, "bytes")), dtype = json_text(entry, "dtype", "");
  const at::ScalarType type = dtype == "int32" ? at::kInt : dtype == "float16" ? at::kHalf : at::kFloat;
  const at::Tensor tensor = at::empty(tests::integers(*json_member(entry, "shape")), type);
  EXPECT_EQ(tensor.nbytes(), bytes.size());
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(tensor.mutable_data_ptr()));
  return tensor;
}

NamedTensors tensors_of(const Json& recorded, const std::string& prefix) {
  NamedTensors tensors;
  for (const auto& [name, entry] : *json_member(recorded, "tensors")->members())
    tensors.emplace_back(prefix + name, recorded_tensor(entry));
  return tensors;
}

// The records are read once.
const Json& records(const char* which) {
  static const Json& all = *new Json(tests::read_cases("packed_weights.json"));
  return *json_member(all, which);
}

const Json& record_named(const std::string& name) {
  const auto& layers = *records("layers").items();
  return *std::find_if(layers.begin(), layers.end(),
                       [&](const Json& each) { return json_text(each, "name", "") == name; });
}

Json config_with(const Json& quantization) { return Json(Json::Members{{"quantization_config", quantization}}); }

PackedFormat format_of(const Json& recorded) {
  return read_packed_format(config_with(*json_member(recorded, "config"))).value();
}

// A model with one layer, "layer".
ModulePtr model_for(const Json& recorded, bool has_bias = true) {
  const int64_t inputs = json_integer(recorded, "inputs", 0), outputs = json_integer(recorded, "outputs", 0);
  const auto model = std::make_shared<CallbackModule>("Chain");
  model->add_child(
      "layer", std::make_shared<Linear>(at::zeros({outputs, inputs}), has_bias ? at::zeros({outputs}) : at::Tensor()));
  model->set_forward([](Module& self, const Inputs& given) -> c10::IValue {
    return self.children().front().second->call(given[0].toTensor());
  });
  return model;
}

const Module& layer_of(const Module& model) { return *model.children().front().second; }

ModulePtr unpacked_model(const Json& recorded) {
  const ModulePtr model = model_for(recorded);
  NamedTensors files = tensors_of(recorded, "layer.");
  files.emplace_back("layer.bias", at::linspace(-1, 1, json_integer(recorded, "outputs", 0)));
  bigmodel::load_checkpoint_in_model(*model, unpack_weights(*model, files, format_of(recorded)), nullptr, {});
  return model;
}

TEST(PackedWeights, StandForTheNumbersOfTheReference) {
  for (const Json& recorded : *records("layers").items()) {
    SCOPED_TRACE(json_text(recorded, "name", ""));
    const ModulePtr model = unpacked_model(recorded);
    const at::Tensor expected = recorded_tensor(*json_member(recorded, "values"));
    const QuantizedMatrix* const matrix = quantized_matrix(layer_of(*model));
    ASSERT_NE(matrix, nullptr);
    EXPECT_TRUE(at::equal(matrix->values(at::kFloat), expected));
    const auto& config = *json_member(recorded, "config");
    const bool is_byte = json_integer(config, "bits", 0) == 8;
    EXPECT_EQ(matrix->state().kind.name, is_byte ? "int8_grouped" : "int4");
    EXPECT_EQ(matrix->state().kind.format.has_offsets, !json_flag(config, "sym", false));
    EXPECT_EQ(matrix->state().has_order, json_flag(config, "desc_act", false));
    EXPECT_EQ(matrix->state().dtype, at::kHalf);
    // Products, their gradients, rows, and what devices without kernels compute.
    const int64_t inputs = json_integer(recorded, "inputs", 0);
    at::Tensor input = at::linspace(-3, 7, 5 * inputs).sin().view({5, inputs});
    input.set_requires_grad(true);
    const at::Tensor bias = layer_of(*model).parameter(Projection::kBias);
    const at::Tensor output = model->call(input), wanted = input.detach().mm(expected.t()) + bias.detach();
    EXPECT_LT((output - wanted).norm().item<double>(), 1e-3 * wanted.norm().item<double>());
    const at::Tensor gradient = at::linspace(-1, 2, output.numel()).cos().view(output.sizes());
    output.backward(gradient);
    EXPECT_TRUE(at::allclose(input.grad(), gradient.mm(expected), 1e-4, 1e-5));
    NamedTensors buffers;
    for (const auto& buffer : layer_of(*model).direct_buffers()) buffers.emplace_back(buffer.name, buffer.tensor);
    const CodedMatrix coded = decode_state(matrix->state(), layer_of(*model).parameter(Projection::kWeight), buffers);
    EXPECT_TRUE(at::allclose(coded.values_by_operators(), expected, 1e-6, 1e-7));
    EXPECT_TRUE(at::equal(coded.rows(at::full({2}, 1, at::kLong), at::kFloat)[1], expected[1]));
  }
}

void write_folder(const std::string& folder, const Json& config, const NamedTensors& tensors) {
  replace_file(folder + "/config.json", print_json(config));
  checkpoint::save_safetensors(folder + "/model.safetensors", tensors, {});
}

at::Tensor logits_of(const ModulePtr& model, const Json& recorded) {
  model->train(false);
  model->to(at::kFloat, std::nullopt);
  return model->call(tests::tokens_of(*json_member(recorded, "ids")));
}

TEST(PackedWeights, OfFoldersGiveTheLogitsOfTheReferenceAndAreSaved) {
  const at::NoGradGuard no_grad;
  for (const Json& recorded : *records("models").items()) {
    SCOPED_TRACE(json_text(recorded, "name", ""));
    const TemporaryFolder folder, copy;
    const Json& config = *json_member(recorded, "config");
    write_folder(folder.path(), config, tensors_of(recorded, ""));
    const ModulePtr model = bigmodel::load_model_folder(folder.path());
    EXPECT_EQ(quantized_layers(*model).size(), 7U);
    const at::Tensor logits = logits_of(model, recorded);
    const at::Tensor expected = tests::tensor_of(*json_member(recorded, "logits"))
                                    .view(tests::integers(*json_member(recorded, "shape")))
                                    .to(at::kFloat);
    EXPECT_LT((logits - expected).norm().item<double>(), 2e-3 * expected.norm().item<double>());
    checkpoint::save_safetensors(copy.path() + "/model.safetensors", HubNames(*model).to_files(model->state_dict()),
                                 {});
    bigmodel::copy_model_files(folder.path(), copy.path());
    bigmodel::write_quantization_config(copy.path(), *model);
    const Json saved = parse_json(RegularFile(copy.path() + "/config.json").read(), "config.json");
    EXPECT_EQ(json_text(*json_member(saved, "quantization_config"), "quant_method", ""), "accel");
    EXPECT_TRUE(at::equal(logits_of(bigmodel::load_model_folder(copy.path()), recorded), logits));
    QuantizationOptions options;
    expect_error(Status::kInvalidArgument, "has a quantization_config, and other options are given",
                 [&] { bigmodel::load_model_folder(folder.path(), &options); });
    write_folder(folder.path(), with_quantization_config(config, Json()), tensors_of(recorded, ""));
    expect_error(Status::kInvalidArgument, "qweight' says, and its config.json has no quantization_config",
                 [&] { bigmodel::load_model_folder(folder.path()); });
    // The configuration of a model without quantized layers says nothing of them.
    write_folder(folder.path(), config, {});
    bigmodel::write_quantization_config(folder.path(),
                                        *module_from_config(print_json(with_quantization_config(config, Json()))));
    EXPECT_EQ(RegularFile(folder.path() + "/config.json").read(),
              print_json(with_quantization_config(config, Json())) + "\n");
  }
}

TEST(PackedWeights, OfSeveralKindsAreSavedTogether) {
  const at::NoGradGuard no_grad;
  const Json& recorded = records("models").items()->front();
  const TemporaryFolder folder, copy;
  NamedTensors tensors = tensors_of(recorded, "");
  // Zeros in the middle, which need no offsets.
  for (auto& [name, tensor] : tensors)
    if (name.find("q_proj.qzeros") != std::string::npos) tensor.fill_(0x77777777);
  write_folder(folder.path(), *json_member(recorded, "config"), tensors);
  const ModulePtr model = bigmodel::load_model_folder(folder.path());
  const Json config = quantization_config(*model);
  EXPECT_EQ(print_json(config), R"({"quant_method":"accel","kinds":["int4"],"skip_modules":["lm_head"]})");
  checkpoint::save_safetensors(copy.path() + "/model.safetensors", HubNames(*model).to_files(model->state_dict()), {});
  bigmodel::copy_model_files(folder.path(), copy.path());
  bigmodel::write_quantization_config(copy.path(), *model);
  const ModulePtr again = bigmodel::load_model_folder(copy.path());
  EXPECT_TRUE(at::equal(logits_of(again, recorded), logits_of(model, recorded)));
  // Files do not say which kind int8 by rows has.
  const auto mixed = std::make_shared<CallbackModule>("Chain");
  for (const char* const kind : {"int4", "int8"}) {
    const ModulePtr part = model_for(record_named("gptq"));
    QuantizationOptions options;
    options.kind = kind;
    options.skip_modules = std::vector<std::string>();
    quantize_model(*part, options);
    mixed->add_child(kind, part);
  }
  expect_error(Status::kUnsupported, "'int8.layer' is quantized to int8 and other layers to int4",
               [&] { quantization_config(*mixed); });
}

TEST(PackedWeights, ConfigurationsOfOtherFormatsAreRefused) {
  const auto read = [](const std::string& quantization) {
    return read_packed_format(config_with(parse_json(quantization, "quantization_config")));
  };
  const auto format = read(
      R"({"quant_method":"gptq","bits":8,"group_size":-1,"checkpoint_format":"gptq_v2","format":"gptq","desc_act":true,)"
      R"("damp_percent":0.1,"meta":{"quantizer":["gptqmodel:4.0.0"]},"dynamic":{"-:lm_head":{}},"lm_head":false})");
  ASSERT_TRUE(format.has_value());
  EXPECT_EQ(format->bits, 8);
  EXPECT_EQ(format->group, 0);
  EXPECT_EQ(format->zero_offset, 0);
  EXPECT_EQ(read(R"({"quant_method":"gptq"})")->zero_offset, 1);
  EXPECT_EQ(read(R"({"quant_method":"awq","version":"GEMM","group_size":64})")->group, 64);
  EXPECT_FALSE(read(R"({"quant_method":"bitsandbytes","load_in_8bit":true})").has_value());
  EXPECT_FALSE(read("null").has_value());
  const auto refused = [&](Status status, const char* words, const std::string& quantization) {
    expect_error(status, words, [&] { read(quantization); });
  };
  refused(Status::kUnsupported, "bits: 3; expected 4 or 8", R"({"quant_method":"gptq","bits":3})");
  refused(Status::kUnsupported, "bits: 8; expected 4", R"({"quant_method":"awq","bits":8})");
  refused(Status::kUnsupported, "version 'gemv'; expected gemm", R"({"quant_method":"awq","version":"GEMV"})");
  refused(Status::kUnsupported, "zero_point: false", R"({"quant_method":"awq","zero_point":false})");
  refused(Status::kUnsupported, "checkpoint_format 'marlin'; expected gptq or gptq_v2",
          R"({"quant_method":"gptq","checkpoint_format":"marlin"})");
  refused(Status::kUnsupported, "is_marlin_format", R"({"quant_method":"gptq","is_marlin_format":true})");
  refused(Status::kUnsupported, "pack_dtype 'int16'", R"({"quant_method":"gptq","pack_dtype":"int16"})");
  refused(Status::kUnsupported, "a rule for '+:.*q_proj'",
          R"({"quant_method":"gptq","dynamic":{"+:.*q_proj":{"bits":8}}})");
  refused(Status::kUnsupported, "has surprise: 1; expected the fields of GPTQConfig",
          R"({"quant_method":"gptq","surprise":1})");
  refused(Status::kInvalidArgument, "group_size: 0", R"({"quant_method":"gptq","group_size":0})");
  expect_error(Status::kUnsupported, "quant_method 'hqq'; expected bitsandbytes, gptq or awq",
               [&] { read_quantization_config(config_with(parse_json(R"({"quant_method":"hqq"})", ""))); });
}

TEST(PackedWeights, TensorsThatDoNotFitAreRefusedByName) {
  const auto refused = [](const char* record, const std::string& name, const at::Tensor& tensor, Status status,
                          const char* words) {
    const Json& recorded = record_named(record);
    NamedTensors files;
    for (const auto& entry : tensors_of(recorded, "layer."))
      if (entry.first != name) files.push_back(entry);
    if (tensor.defined()) files.emplace_back(name, tensor);
    const ModulePtr model = model_for(recorded, false);
    expect_error(status, words, [&] { unpack_weights(*model, files, format_of(recorded)); });
  };
  const char* const plain = "gptq";
  refused(plain, "layer.qweight", at::Tensor(), Status::kUnsupported, "'layer.scales' belongs to no linear layer");
  refused(plain, "layer.qweight", at::zeros({9, 8}, at::kInt), Status::kInvalidArgument,
          "'layer.qweight' is [9, 8]; expected [8, 8]");
  refused(plain, "layer.qweight", at::zeros({8, 8}), Status::kInvalidArgument, "is float32; expected int32");
  refused(plain, "layer.qzeros", at::Tensor(), Status::kInvalidArgument, "lack 'layer.qzeros'");
  refused(plain, "layer.qzeros", at::zeros({2, 8}, at::kInt), Status::kInvalidArgument, "expected [2, 1]");
  refused(plain, "layer.scales", at::ones({3, 8}), Status::kInvalidArgument, "'layer.scales' is [3, 8]");
  refused(plain, "layer.scales", at::ones({2, 8}, at::kInt), Status::kInvalidArgument, "'layer.scales' is int32");
  refused(plain, "layer.scales", at::full({2, 8}, std::numeric_limits<double>::infinity()), Status::kInvalidArgument,
          "has a NaN or an infinity");
  refused(plain, "layer.g_idx", at::full({64}, 2, at::kInt), Status::kInvalidArgument,
          "'layer.g_idx' has groups from 2 to 2; expected 0 to 1");
  refused(plain, "layer.g_idx", at::zeros({64}, at::kInt), Status::kUnsupported,
          "'layer.g_idx' has groups of several sizes");
  refused(plain, "layer.bias", at::ones({8}), Status::kInvalidArgument, "'layer.bias' is not zero");
  refused(plain, "other.qweight", at::zeros({8, 8}, at::kInt), Status::kUnsupported, "'other.qweight' belongs to no");
  refused("awq", "layer.qweight", at::zeros({8, 16}, at::kInt), Status::kInvalidArgument, "expected [64, 2]");
  // A format that fits no kind, and files without packed weights.
  const Json& recorded = record_named("gptq of 8 bits with zeros");
  PackedFormat format = format_of(recorded);
  format.group = 24;
  const ModulePtr model = model_for(recorded);
  NamedTensors files = tensors_of(recorded, "layer.");
  for (auto& [name, tensor] : files) {
    if (name == "layer.scales") tensor = tensor.slice(0, 0, 2);
    if (name == "layer.qzeros") tensor = tensor.slice(0, 0, 2);
  }
  files.erase(
      std::remove_if(files.begin(), files.end(), [](const auto& entry) { return entry.first == "layer.g_idx"; }),
      files.end());
  expect_error(Status::kUnsupported, "groups of 24 inputs; expected a multiple of 16",
               [&] { unpack_weights(*model, files, format); });
  expect_error(Status::kNotFound, "no tensor of the files is", [&] {
    unpack_weights(*model, {{"layer.weight", at::ones({4, 48})}}, format);
  });
}

TEST(PackedWeights, BiasesOfZerosAreLeftOut) {
  const Json& recorded = record_named("gptq");
  const ModulePtr model = model_for(recorded, false);
  NamedTensors files = tensors_of(recorded, "layer.");
  files.emplace_back("layer.bias", at::zeros({8}, at::kHalf));
  for (const auto& [name, tensor] : unpack_weights(*model, files, format_of(recorded))) EXPECT_NE(name, "layer.bias");
}

TEST(PackedWeights, SavedOrdersOfColumnsAreChecked) {
  const ModulePtr model = unpacked_model(record_named("gptq with zeros and act-order"));
  const NamedTensors good = HubNames(*model).to_files(model->state_dict());
  const auto refused = [&](const at::Tensor& order, Status status, const char* words) {
    NamedTensors files;
    for (const auto& entry : good)
      if (entry.first != "layer.weight.columns") files.push_back(entry);
    if (order.defined()) files.emplace_back("layer.weight.columns", order);
    const ModulePtr other = model_for(record_named("gptq with zeros and act-order"));
    QuantizationOptions options;
    options.kind = "int4";
    expect_error(status, words, [&] { prepare_quantized(*other, files, make_quantized_kind(options)); });
  };
  EXPECT_EQ(good.size(), 6U);
  refused(at::Tensor(), Status::kNotFound, "lack 'layer.weight.columns'");
  refused(at::zeros({71}, at::kInt), Status::kShapeMismatch, "expected 72 numbers of int32");
  refused(at::zeros({72}, at::kInt), Status::kInvalidArgument, "does not have each number below 72 once");
}

}  // namespace packed_weights_test
}  // namespace accel::nn
