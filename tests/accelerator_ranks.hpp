// SPDX-License-Identifier: Apache-2.0
// Accelerators of ranks that run as threads of one process.
#pragma once

#include <functional>
#include <memory>

#include "accelerator/accelerator.hpp"
#include "config/generated/settings/prepare/ddp.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "config/generated/settings/state/state.hpp"
#include "rank_threads.hpp"

namespace accel::tests {

using AcceleratorPtr = std::shared_ptr<accelerator::Accelerator>;

inline PrepareModelSettings prepared_by(const DdpSettings& ddp) {
  PrepareModelSettings settings;
  settings.ddp = ddp;
  return settings;
}

// Runs `body` on every rank with an accelerator of these options on the CPU.
inline void run_accelerators(int size, StateSettings options, const std::function<void(const AcceleratorPtr&)>& body) {
  options.cpu = true;
  options.process_index = 0;
  options.num_processes = 1;
  const accelerator::Accelerator alone(options);
  run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    body(std::make_shared<accelerator::Accelerator>(alone, communicator));
  });
}

}  // namespace accel::tests
