// SPDX-License-Identifier: Apache-2.0
// Cut agreement: the ranks of a job have the same model and options before they cut it into stages, so that none waits
// for a stage that another rank does not have.
#pragma once

#include <exception>

#include "comm/communicator.hpp"
#include "nn/module.hpp"

namespace accel {
struct PrepareModelSettings;
}

namespace accel::parallel {

// Collective. `refusal` is why this rank cannot cut its model, or null: all ranks throw it. Throws COLLECTIVE_MISMATCH
// with what differs.
void agree_on_cut(const nn::Module& model, const nn::ModuleChain& chain, const PrepareModelSettings& settings,
                  const std::exception_ptr& refusal, comm::Communicator& ranks);

}  // namespace accel::parallel
