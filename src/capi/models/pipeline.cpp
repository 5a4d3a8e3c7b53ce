// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/object.hpp"
#include "nn/layers/chain_parts.hpp"
#include "nn/layers/sequential.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_pipeline_create(accel_module_t* const* parts, size_t n_parts,
                                                    accel_module_t** out) {
  return guarded(__func__, out, [&] {
    check_array(parts, n_parts, "parts");
    require(n_parts > 0, Status::kInvalidArgument, "n_parts is 0; expected the number of parts, 1 or more");
    std::vector<nn::ModulePtr> modules;
    for (size_t i = 0; i < n_parts; i++) modules.push_back(check(parts[i], "parts").module);
    if (n_parts == 1 && modules[0]->kind() != nn::kProgramChain)
      if (auto inside = nn::parts_of_chain(modules[0]); inside.size() > 1) modules = std::move(inside);
    return std::make_shared<nn::Sequential>(modules, nn::kProgramChain);
  });
}

}  // namespace accel::capi
