// SPDX-License-Identifier: Apache-2.0
// What the tests of models of images share: a model as its reference recorded it, with its inputs and numbers.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>

#include <map>
#include <string>
#include <vector>

#include "architecture_fixture.hpp"
#include "nn/architectures/hub_names.hpp"
#include "tensor/tree.hpp"

namespace accel::tests {

// As make_vision_fixtures.py does.
inline at::Tensor images_of(const Json& sizes) {
  const std::vector<int64_t> shape = integers(sizes);
  const at::Tensor places = at::arange(c10::multiply_integers(shape), at::kDouble);
  return (places * 0.61 + (places * 0.013).sin()).sin().to(at::kFloat).reshape(shape);
}

inline nn::ModulePtr vision_model(const Json& recorded) {
  nn::ModulePtr model = nn::module_from_config(print_json(*json_member(recorded, "config")));
  model->train(json_flag(recorded, "training", false));
  const at::NoGradGuard no_grad;
  const double scale = json_number(recorded, "scale", 1);
  for (const auto& [name, tensor] : nn::HubNames(*model).to_files(model->state_dict())) {
    if (!tensor.is_floating_point()) continue;
    const at::Tensor values = weight_of(name, tensor.sizes(), json_integer(recorded, "seed", 0));
    tensor.copy_(tensor.dim() > 1 ? values * scale : values);
  }
  return model;
}

inline at::Tensor vision_mask(const Json& recorded) {
  const Json* const rows = json_member(recorded, "attention_mask");
  return rows == nullptr ? at::Tensor() : tokens_of(*rows);
}

inline nn::Inputs vision_inputs(const nn::Module& model, const Json& recorded) {
  nn::Inputs inputs;
  for (const std::string& name : model.input_names()) {
    const Json* const rows = json_member(recorded, name);
    if (name == "pixel_values")
      inputs.emplace_back(images_of(*json_member(recorded, "image")));
    else if (name == "interpolate_pos_encoding")
      inputs.push_back(json_flag(recorded, name.c_str(), false) ? c10::IValue(true) : c10::IValue());
    else if (name == "return_loss")
      inputs.emplace_back(true);
    else
      inputs.push_back(rows == nullptr ? c10::IValue() : c10::IValue(tokens_of(*rows)));
  }
  return inputs;
}

// The tensors of an output, without what padding gives.
inline std::vector<at::Tensor> vision_outputs(const c10::IValue& output, const Json& recorded) {
  std::vector<at::Tensor> tensors;
  if (output.isTensor()) tensors = {output.toTensor()};
  if (!output.isTensor())
    for (const c10::IValue& item : tree::sequence_items(output)) tensors.push_back(item.toTensor());
  const at::Tensor mask = vision_mask(recorded);
  for (at::Tensor& tensor : tensors)
    if (mask.defined() && tensor.dim() == 3) tensor = tensor * mask.unsqueeze(-1);
  return tensors;
}

inline at::Tensor vision_loss(const std::vector<at::Tensor>& outputs) {
  at::Tensor loss;
  for (const at::Tensor& output : outputs) {
    const at::Tensor weights = (at::arange(output.numel(), at::kDouble) * 0.37).sin().to(at::kFloat);
    const at::Tensor part = (output.to(at::kFloat) * weights.view_as(output)).sum();
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

template <typename Check>
void for_each_vision_case(const Check& check) {
  for (const char* const file : {"vision_models.json", "resized_vision_models.json"}) {
    const Json fixture = read_cases(file);
    for (const Json& recorded : *fixture.items()) {
      SCOPED_TRACE(print_json(*json_member(recorded, "config")));
      check(recorded, vision_model(recorded));
    }
  }
}

// The tolerance is a part of the largest number, which is at least 1.
inline void expect_part_close(const at::Tensor& actual, const at::Tensor& expected, double part) {
  expect_close(actual, expected, part * std::max(1.0, expected.abs().max().item<double>()));
}

inline nn::NamedTensors parameters_in_files(const nn::Module& model) {
  const nn::HubNames names(model);
  nn::NamedTensors parameters = nn::named_parameters(model);
  for (auto& [name, tensor] : parameters)
    if (const auto parts = names.parts_of(name, tensor.sizes()); !parts.empty()) name = parts[0].name;
  return parameters;
}

inline void expect_vision_gradients(const nn::Module& model, const Json& recorded) {
  const Json& gradients = *json_member(recorded, "gradients");
  size_t compared = 0;
  for (const auto& [name, tensor] : parameters_in_files(model)) {
    const Json* const entry = json_member(gradients, name);
    ASSERT_EQ(entry != nullptr, tensor.grad().defined()) << name;
    if (entry == nullptr) continue;
    compared++;
    const std::vector<double> expected = numbers(*entry);
    const double tolerance = 1e-5 * std::max(1.0, expected[0]);
    EXPECT_NEAR(tensor.grad().norm().item<double>(), expected[0], tolerance) << name;
    EXPECT_NEAR(tensor.grad().flatten()[1 % tensor.numel()].item<double>(), expected[1], tolerance) << name;
  }
  EXPECT_EQ(compared, gradients.members()->size());
}

}  // namespace accel::tests
