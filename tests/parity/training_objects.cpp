// SPDX-License-Identifier: Apache-2.0
#include "training_objects.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "accel.h"
#include "capi/calls/handles.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data/sampler.hpp"
#include "fixture.hpp"
#include "nn/module_walks.hpp"

namespace accel::parity {
namespace {

// An argument, or "not given".
double number(const c10::IValue& arguments, const char* key) {
  const auto value = optional_member(arguments, key);
  return value ? value->toScalar().toDouble() : ACCEL_UNSET_DOUBLE;
}

int32_t flag(const c10::IValue& arguments, const char* key) {
  const auto value = optional_member(arguments, key);
  return value ? int32_t{value->toBool()} : ACCEL_UNSET;
}

}  // namespace

std::shared_ptr<nn::CallbackModule> one_weight(double value) {
  auto model = std::make_shared<nn::CallbackModule>("OneWeight");
  model->add_parameter("w", at::full({1}, value));
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    return nn::find_tensor(module, "w") * inputs[0].toTensor();
  });
  return model;
}

std::shared_ptr<optim::Optimizer> make_optimizer(const std::string& name, const c10::IValue& arguments,
                                                 const nn::ModulePtr& model) {
  accel_optimizer_t* made = nullptr;
  const auto module = std::make_unique<accel_module>(model);
  accel_status_t status = ACCEL_OK;
  if (name == "sgd" || name == "momentum") {
    accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
    options.lr = number(arguments, "lr");
    options.momentum = number(arguments, "momentum");
    options.weight_decay = number(arguments, "weight_decay");
    options.nesterov = flag(arguments, "nesterov");
    status = accel_optimizer_sgd(module.get(), &options, &made);
  } else {
    accel_adam_options_t options = ACCEL_ADAM_OPTIONS_INIT;
    options.lr = number(arguments, "lr");
    options.eps = number(arguments, "eps");
    options.weight_decay = number(arguments, "weight_decay");
    options.amsgrad = flag(arguments, "amsgrad");
    if (const auto betas = optional_member(arguments, "betas")) {
      options.beta1 = betas->toListRef()[0].toDouble();
      options.beta2 = betas->toListRef()[1].toDouble();
    }
    status = name == "adam" ? accel_optimizer_adam(module.get(), &options, &made)
                            : accel_optimizer_adamw(module.get(), &options, &made);
  }
  EXPECT_EQ(status, ACCEL_OK) << accel_last_error();
  auto optimizer = made->optimizer;
  accel_optimizer_release(made);
  return optimizer;
}

std::shared_ptr<data::DataLoader> make_loader(std::vector<at::Tensor> tensors, int64_t batch_size) {
  const int64_t rows = tensors[0].size(0);
  data::LoaderOptions options;
  options.batch_size = batch_size;
  return std::make_shared<data::DataLoader>(std::make_shared<data::TensorDataset>(std::move(tensors)),
                                            std::make_shared<data::SequentialSampler>(rows), options);
}

}  // namespace accel::parity
