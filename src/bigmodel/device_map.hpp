// Device map: where each part of a model is kept.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace accel::bigmodel {

// Places of modules, parameters and buffers by their paths; what is below a path has its place, unless it has one of
// its own. "" is the whole model. A place is the number of an accelerator ("0"), a device ("cpu", "xpu:1"), or "disk".
using DeviceMap = std::vector<std::pair<std::string, std::string>>;

}  // namespace accel::bigmodel
