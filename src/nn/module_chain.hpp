// Module chain: a model as a chain of parts, each of which gets the output of the part before it. Pipelines cut it.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

namespace accel::nn {

struct ModulePart {
  std::string name;                  // "embed", "h.4", "head"
  std::vector<std::string> modules;  // paths below the model of what it owns: {"transformer.h.4"}
  // Computes the part, with the hooks of the modules that it owns. The first part gets a tuple of the model's inputs,
  // each further one the output of the part before; the output of the last one is the model's.
  std::function<c10::IValue(const c10::IValue& input)> call;
};

using ModuleChain = std::vector<ModulePart>;

}  // namespace accel::nn
