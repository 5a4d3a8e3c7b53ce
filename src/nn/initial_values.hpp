// SPDX-License-Identifier: Apache-2.0
// Initial values of tensors that were made without memory: what their layers would have filled them with.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/module.hpp"

namespace accel::nn {

struct Filling {
  enum class Kind : uint8_t { kConstant, kUniform, kNormal };
  Kind kind = Kind::kConstant;
  double first = 0, second = 0;  // the value; the bounds; mean and standard deviation
};

// Fills the tensor. One on the device meta remembers the filling.
void set_initial_values(const at::Tensor& tensor, const Filling& filling);
// A tensor on the device meta remembers what the other one does.
void remember_filling_of(const at::Tensor& tensor, const at::Tensor& other);

// Whether a parameter or buffer has no memory.
bool lacks_memory(const Module& module);
// Gives memory on the CPU to the parameters and buffers that have none, with the values that they would have, drawn in
// the order in which the tensors were made. One whole tensor is in memory at a time: of a placed parameter this rank
// keeps its part. Of a model of which other ranks have parts, `whole` has all parameters and buffers, so that this rank
// gets the values that it would get of the whole model. kInvalidState for a tensor that has not been filled.
void draw_initial_values(Module& module, const at::Generator& generator, const NamedTensors& whole = {});

}  // namespace accel::nn
