// SPDX-License-Identifier: Apache-2.0
// Expert files: what the files of a model call the weights of a mixture of experts.
#pragma once

#include <string>

namespace accel::nn {

// Each expert has matrices of its own there, PATH.experts.NUMBER.gate.weight, where a model has one parameter. Without
// a path the names are those of the model.
struct ExpertFiles {
  std::string path;  // of the mixture, in the place of its own name
  std::string gate, up, down;
};

}  // namespace accel::nn
