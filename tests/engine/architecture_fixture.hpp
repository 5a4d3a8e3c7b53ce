// SPDX-License-Identifier: Apache-2.0
// What the tests of architectures share: a model as its reference recorded it, and the comparison with the recorded
// numbers.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/environment.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/module_walks.hpp"
#include "nn_fixture.hpp"

namespace accel::tests {

// From the folder ACCEL_PARITY_DIR if it has them.
inline Json read_cases(const std::string& name) {
  if (const auto folder = environment_text("ACCEL_PARITY_DIR")) {
    std::ifstream file(*folder + "/" + name);
    if (file.is_open())
      return parse_json(std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()), name);
  }
  return read_fixture(name);
}

// As make_decoder_fixtures.py does.
inline at::Tensor weight_of(const std::string& name, at::IntArrayRef sizes, int64_t seed) {
  int64_t number = seed;
  for (const char letter : name) number = (number * 31 + static_cast<unsigned char>(letter)) % 1000003;
  const double salt = static_cast<double>(number) / 1000003;
  const at::Tensor values =
      (at::arange(c10::multiply_integers(sizes), at::kDouble) * (0.7 + salt) + 10 * salt).sin() * 0.4;
  const bool is_scale = sizes.size() == 1 && name.find("norm") != std::string::npos;
  return (is_scale ? values + 1 : values).to(at::kFloat).reshape(sizes);
}

inline at::Tensor tokens_of(const Json& rows) {
  std::vector<at::Tensor> tensors;
  for (const Json& row : *rows.items()) tensors.push_back(at::tensor(integers(row)));
  return at::stack(tensors);
}

// The model of the recorded configuration, not in training. A formula times `scale` gives its weights.
inline nn::ModulePtr recorded_model(const Json& recorded, double scale) {
  nn::ModulePtr model = nn::module_from_config(print_json(*json_member(recorded, "config")));
  model->train(false);
  const at::NoGradGuard no_grad;
  int64_t salt = 0;
  for (const auto& [name, tensor] : model->state_dict()) tensor.copy_(scale * pattern_tensor(tensor.sizes(), salt++));
  return model;
}

inline void expect_recorded_state(const nn::Module& model, const Json& recorded) {
  const nn::NamedTensors state = model.state_dict();
  const Json::Items& names = *json_member(recorded, "state_dict")->items();
  ASSERT_EQ(state.size(), names.size());
  for (size_t i = 0; i < names.size(); i++) {
    const Json::Items& entry = *names[i].items();
    EXPECT_EQ(state[i].first, *entry[0].text());
    EXPECT_EQ(state[i].second.sizes().vec(), integers(entry[1]));
  }
}

// The logits of the recorded tokens, their loss, and of each gradient the norm and one element. The tolerance of an
// element is 1e-5 and this part of the gradient's norm.
inline void expect_recorded_numbers(nn::Module& model, const Json& recorded, double part_of_norm) {
  const at::Tensor tokens = tokens_of(*json_member(recorded, "tokens"));
  const at::Tensor logits = model.call(tokens);
  expect_close(logits, tensor_of(*json_member(recorded, "logits")), 1e-5);
  const at::Tensor loss = at::cross_entropy_loss(logits.slice(1, 0, -1).flatten(0, 1), tokens.slice(1, 1).flatten());
  EXPECT_NEAR(loss.item<double>(), json_number(recorded, "loss", 0), 1e-5);
  loss.backward();
  const Json& gradients = *json_member(recorded, "gradients");
  EXPECT_EQ(nn::named_parameters(model).size(), gradients.members()->size());
  for (const auto& [name, tensor] : nn::named_parameters(model)) {
    const std::vector<double> expected = numbers(*json_member(gradients, name));
    EXPECT_NEAR(tensor.grad().norm().item<double>(), expected[0], 1e-5 + 1e-4 * expected[0]) << name;
    EXPECT_NEAR(tensor.grad().flatten()[1].item<double>(), expected[1], 1e-5 + part_of_norm * expected[0]) << name;
  }
}

}  // namespace accel::tests
