// SPDX-License-Identifier: Apache-2.0
// Part costs: what the parts of a chain cost, by which a pipeline is cut.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "nn/module.hpp"

namespace accel::parallel {

// The elements and bytes of a part's parameters, each once.
struct PartSize {
  int64_t parameters = 0, bytes = 0;
};
std::vector<PartSize> part_sizes(nn::Module& model, const nn::ModuleChain& chain);

// The operations of each part's products of one row, in a forward, with the weights that it has: those of two
// dimensions or more, but for look-up tables.
std::vector<double> weight_operations(nn::Module& model, const nn::ModuleChain& chain);

// The operations of the products in a forward of each part: of matrices, convolutions and attention.
std::vector<double> counted_operations(nn::Module& model, const nn::ModuleChain& chain, const c10::IValue& sample);

// The seconds of a part's forward, and of the halves of its backward.
struct PartSeconds {
  double forward = 0, input_backward = 0, weight_backward = 0;

  double all() const { return forward + input_backward + weight_backward; }
};

// By part: those of the fastest of several runs of the chain, behind one that warms up; and all of a part together.
std::vector<PartSeconds> measured_halves(nn::Module& model, const nn::ModuleChain& chain, const c10::IValue& sample);
std::vector<double> measured_seconds(nn::Module& model, const nn::ModuleChain& chain, const c10::IValue& sample);

}  // namespace accel::parallel
