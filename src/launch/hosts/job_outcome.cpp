// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/job_outcome.hpp"

#include <algorithm>
#include <cstdio>

#include "launch/job.hpp"

namespace accel::launch {

void JobOutcome::end_attempt(Reason reason) { reason_ = std::max(reason_, reason); }

void JobOutcome::note_failure(int status, bool is_hopeless) {
  failed_status_ = status;
  is_hopeless_ = is_hopeless;
}

void JobOutcome::note_end(bool finished, bool asks_for_requeue) {
  all_finished_ = all_finished_ && finished;
  asks_for_requeue_ = asks_for_requeue_ || asks_for_requeue;
}

std::optional<int> JobOutcome::status() {
  if (reason_ == Reason::kStop) return asks_for_requeue_ ? kRequeueStatus : 128 + *stop_signal_;
  if (reason_ == Reason::kFailure) {
    if (restarts_ >= max_restarts_ || is_hopeless_) return failed_status_;
    ++restarts_;
    std::fprintf(stderr, "accel launch: restart %d of %d\n", restarts_, max_restarts_);
  } else if (all_finished_) {
    return 0;
  } else if (reason_ == Reason::kNone) {
    return asks_for_requeue_ ? kRequeueStatus : 1;
  }
  return std::nullopt;
}

void JobOutcome::next_attempt() {
  reason_ = Reason::kNone;
  all_finished_ = true;
  asks_for_requeue_ = false;
}

}  // namespace accel::launch
