// SPDX-License-Identifier: Apache-2.0
// Calls outside of a sharded model: a module whose parameters belong to the group of a module around it has their rows
// of this rank alone when it is called by itself, which is an error.
#pragma once

#include <memory>
#include <vector>

#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/module_hooks.hpp"
#include "parallel/fsdp/parameter_group.hpp"
#include "parallel/fsdp/schedule_executor.hpp"

namespace accel::parallel {

// `modules` are those of the groups. The arguments exist as long as the hooks that are added.
void watch_calls_outside(nn::Module& model, const std::vector<WrappedModule>& modules,
                         const std::vector<std::unique_ptr<ParameterGroup>>& groups, const ScheduleExecutor& executor,
                         ModuleHooks& hooks);

}  // namespace accel::parallel
