// SPDX-License-Identifier: Apache-2.0
// Parameters of an application with an autograd of its own: named memory that optimizers update in place.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/module.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::accelerator {

// The memory of an application that was registered, which stays at its address. Throws for what cannot be trained in
// place.
class RegisteredMemory {
 public:
  // In the order of the names, so that hash maps of different ranks agree.
  RegisteredMemory(nn::NamedTensors tensors, c10::Device of_state);

  // Throws if both have a block of memory.
  void require_apart_from(const RegisteredMemory& registered) const;

  // Modules by the dots of the names, whose parameters are over this memory.
  const nn::ModulePtr& module() const { return module_; }
  // The device of all parameters: the state's, or the CPU.
  c10::Device device() const { return device_; }

  // Collective if the model of the module is sharded: its parameters are parts, and the memory gets the whole of them.
  void gather(parallel::ParallelModel& model) const;

 private:
  nn::NamedTensors tensors_;
  nn::ModulePtr module_;
  c10::Device device_{c10::kCPU};
  std::vector<at::Tensor> memory_, parameters_;  // in the same order
};

// A parameter whose gradients the application computes.
struct TrainedParameter {
  std::string name;
  at::Tensor tensor;
  std::vector<int64_t> shape;  // of the whole parameter
};

std::vector<TrainedParameter> trained_parameters(const nn::Module& module);

// A gradient for each parameter, undefined for those that have zeros. Throws for names that are missing or unknown, and
// for shapes and dtypes that the parameter cannot take.
std::vector<at::Tensor> arrange_gradients(const std::vector<TrainedParameter>& parameters,
                                          const nn::NamedTensors& given, bool allow_missing);

}  // namespace accel::accelerator
