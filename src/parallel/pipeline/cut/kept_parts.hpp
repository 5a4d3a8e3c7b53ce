// SPDX-License-Identifier: Apache-2.0
// Kept parts: a rank of a pipeline has the parts of its stages alone.
#pragma once

#include <cstddef>
#include <set>

#include "nn/module.hpp"
#include "nn/module_walks.hpp"

namespace accel::parallel {

// The modules that are in no part, with their paths: each rank has them, whatever its parts are.
nn::NamedModules modules_of_all_stages(const nn::Module& model, const nn::ModuleChain& chain);

// Takes the modules of all other parts out of the model and releases their memory: their parameters and buffers are on
// the device meta then, wherever the program holds them, and to call them is INVALID_STATE. Modules that a retained
// part has too stay. What stays keeps its names. Tensors that other parts share with a retained one, or with a module
// in no part, keep their memory.
void keep_parts(nn::Module& model, const nn::ModuleChain& chain, const std::set<size_t>& parts);

}  // namespace accel::parallel
