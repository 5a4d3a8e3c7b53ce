// SPDX-License-Identifier: Apache-2.0
// Models, optimizers and loaders as Accelerate's scripts make them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "data/dataloader.hpp"
#include "nn/callback_module.hpp"
#include "optim/optimizer.hpp"

namespace accel::parity {

// x -> w * x with one weight.
std::shared_ptr<nn::CallbackModule> one_weight(double value);

// An optimizer of torch.optim by its class and arguments: "sgd" or "momentum", "adam", "adamw".
std::shared_ptr<optim::Optimizer> make_optimizer(const std::string& name, const c10::IValue& arguments,
                                                 const nn::ModulePtr& model);

// In their order, without shuffling.
std::shared_ptr<data::DataLoader> make_loader(std::vector<at::Tensor> tensors, int64_t batch_size);

}  // namespace accel::parity
