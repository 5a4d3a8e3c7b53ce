// SPDX-License-Identifier: Apache-2.0
#include "state/batch_loop.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace accel::state {

BatchLoop::BatchLoop(std::shared_ptr<GradientState> gradient_state, int64_t num_processes, int64_t process_index)
    : gradient_state_(std::move(gradient_state)), num_processes_(num_processes), process_index_(process_index) {
  gradient_state_->begin_loader(progress_);
}

BatchLoop::~BatchLoop() { gradient_state_->end_loader(progress_); }

void BatchLoop::set_batch(const std::vector<int64_t>& rows, int64_t remainder, bool end_of_dataloader) {
  require(static_cast<int64_t>(rows.size()) == num_processes_, Status::kInvalidArgument, "n_rows is ", rows.size(),
          "; expected one number for each of the ", num_processes_, " ranks");
  int64_t all = 0;
  for (const int64_t count : rows) all += std::max<int64_t>(count, 0);
  require(!end_of_dataloader || remainder <= all, Status::kInvalidArgument, "remainder is ", remainder,
          " of the last batches, which have ", all, " rows; expected at most as many");
  LoaderProgress progress;
  progress.end_of_dataloader = end_of_dataloader;
  progress.remainder = std::max<int64_t>(remainder, -1);
  progress.rows = std::max<int64_t>(rows[static_cast<size_t>(process_index_)], 0);
  int64_t left = end_of_dataloader && remainder > 0 ? remainder : all;
  const bool is_uniform =
      left == all && std::all_of(rows.begin(), rows.end(), [&](int64_t count) { return count == rows[0]; });
  for (const int64_t count : rows) {
    if (is_uniform) break;
    const int64_t valid = std::min(std::max<int64_t>(count, 0), left);
    left -= valid;
    progress.ranks.push_back({std::max<int64_t>(count, -1), valid});
  }
  *progress_ = std::move(progress);
}

}  // namespace accel::state
