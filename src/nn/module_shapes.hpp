// SPDX-License-Identifier: Apache-2.0
// Models of shapes alone, on the device meta and without a forward: for estimates of models that need not fit.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

// Makes the same tree with the same kinds, names and ties. `shape` returns the shape of a parameter.
ModulePtr shapes_of(const Module& module,
                    const std::function<std::vector<int64_t>(const at::Tensor& parameter)>& shape);

// A tree from the names of a state dict. Members of lists are modules of the kind "layers.N" behind a "ModuleList",
// others are of the kind that their name is; the model is a "Model". Tensors that share memory are tied. Tensors that
// are not floating, and the statistics of batch normalization, are buffers.
ModulePtr shapes_from_state_dict(const NamedTensors& state_dict);

}  // namespace accel::nn
