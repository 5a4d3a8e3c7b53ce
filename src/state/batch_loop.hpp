// SPDX-License-Identifier: Apache-2.0
// A loop over batches that the application reads itself: what gradient accumulation and metrics know of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "state/gradient_state.hpp"

namespace accel::state {

// The innermost loop of its gradient state as long as it lives, or until another one begins inside.
class BatchLoop {
 public:
  BatchLoop(std::shared_ptr<GradientState> gradient_state, int64_t num_processes, int64_t process_index);
  ~BatchLoop();
  BatchLoop(const BatchLoop&) = delete;
  BatchLoop& operator=(const BatchLoop&) = delete;

  // `rows` of each rank's batch, negative where a rank has none; `remainder` as LoaderProgress has it.
  void set_batch(const std::vector<int64_t>& rows, int64_t remainder, bool end_of_dataloader);

 private:
  std::shared_ptr<GradientState> gradient_state_;
  int64_t num_processes_;
  int64_t process_index_;
  std::shared_ptr<LoaderProgress> progress_ = std::make_shared<LoaderProgress>();
};

}  // namespace accel::state
