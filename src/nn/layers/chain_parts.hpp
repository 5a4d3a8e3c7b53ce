// SPDX-License-Identifier: Apache-2.0
// Chain parts: the parts of a model that is a chain, each as a module by itself, so that a program can put runs of them
// where it likes.
#pragma once

#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

// Their children are those of the model, under the same names, in lists where the model has modules. The first part
// takes the inputs of the model, each further one the output of the part before. They keep the model. Empty: the model
// is no chain.
std::vector<ModulePtr> parts_of_chain(const ModulePtr& model);

}  // namespace accel::nn
