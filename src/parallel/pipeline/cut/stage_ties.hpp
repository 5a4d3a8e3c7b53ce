// SPDX-License-Identifier: Apache-2.0
// Stage ties: parameters that several stages of a pipeline have, such as the weight of an embedding and of the head.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "nn/module.hpp"
#include "parallel/pipeline/cut/stage_cut.hpp"

namespace accel::parallel {

struct StageTie {
  std::string name;  // in the whole model: its first
  at::Tensor parameter;
  std::vector<std::pair<int, std::string>> stages;  // those that have it, ascending, with its first name in each
};

// The ties of a model that has all of its parts, in the order of its parameters. All stages have those of modules that
// are in no part.
std::vector<StageTie> ties_between_stages(nn::Module& model, const nn::ModuleChain& chain, const StageBegins& begins);

}  // namespace accel::parallel
