// SPDX-License-Identifier: Apache-2.0
// Main process first: the main process runs a section before the others. @accelerate main_process_first
#pragma once

#include <memory>
#include <utility>

#include "comm/communicator.hpp"

namespace accel::state {

// The other processes wait at the beginning for the main process, which enters the barrier at its end.
class MainProcessFirst {
 public:
  MainProcessFirst(std::shared_ptr<comm::Communicator> communicator, bool is_main)
      : communicator_(std::move(communicator)), is_main_(is_main) {
    if (!is_main_) communicator_->barrier();
  }
  void finish() {
    if (is_main_) communicator_->barrier();
  }

 private:
  std::shared_ptr<comm::Communicator> communicator_;
  bool is_main_;
};

}  // namespace accel::state
