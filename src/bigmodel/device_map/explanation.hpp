// Decisions of a placement as values and as text.
#pragma once

#include <string>

#include "bigmodel/device_map/block_placement.hpp"
#include "bigmodel/device_map/infer_device_map.hpp"

namespace accel::bigmodel {

Explanation explain(const ModuleTree& tree, const Placement& placement);

// "'lm_head' is on cpu: it needs ..."
std::string line_of(const ModuleTree& tree, const Placement& placement, const Step& step);

}  // namespace accel::bigmodel
