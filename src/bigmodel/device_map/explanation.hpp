// SPDX-License-Identifier: Apache-2.0
// Decisions of a placement as values and as text.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "bigmodel/device_map/block_placement.hpp"

namespace accel::bigmodel {

// Why each part is where it is.
struct Explanation {
  c10::IValue decisions;  // a list of maps
  std::string text;       // the same, one line each
};

Explanation explain(const ModuleTree& tree, const Placement& placement);

// "'lm_head' is on cpu: it needs ..."
std::string line_of(const ModuleTree& tree, const Placement& placement, const Step& step);

}  // namespace accel::bigmodel
