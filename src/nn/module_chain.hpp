// SPDX-License-Identifier: Apache-2.0
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

// The chain of a model that calls a head, at `head`, on the output of its module at `base`, which is that chain. The
// head belongs to the last part.
ModuleChain chain_with_head(ModuleChain chain, const std::string& base, const std::string& head,
                            std::function<c10::IValue(const c10::IValue& output)> call_head);

}  // namespace accel::nn
