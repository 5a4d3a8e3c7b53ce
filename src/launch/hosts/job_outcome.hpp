// SPDX-License-Identifier: Apache-2.0
// The outcome of a job: what its attempts came to, and whether another one follows.
#pragma once

#include <optional>

namespace accel::launch {

class JobOutcome {
 public:
  // Why an attempt ends early; the greatest of several counts.
  enum class Reason { kNone, kFailure, kMembership, kStop };

  explicit JobOutcome(int max_restarts) : max_restarts_(max_restarts) {}

  void end_attempt(Reason reason);

  // A restart after a hopeless failure would fail, too.
  void note_failure(int status, bool is_hopeless);
  // The ranks of a host have ended; `finished`: each with 0.
  void note_end(bool finished, bool asks_for_requeue);
  void note_stop(int signal) { stop_signal_ = signal; }
  bool is_stopped() const { return stop_signal_.has_value(); }
  bool asks_for_requeue() const { return asks_for_requeue_; }

  // After an attempt: the status of the job, or nothing if there is another attempt.
  std::optional<int> status();
  // Forgets what concerned the attempt before.
  void next_attempt();

 private:
  const int max_restarts_;
  int restarts_ = 0;
  Reason reason_ = Reason::kNone;
  int failed_status_ = 0;
  std::optional<int> stop_signal_;
  bool all_finished_ = true;  // every rank of the attempt with 0
  bool asks_for_requeue_ = false;
  bool is_hopeless_ = false;
};

}  // namespace accel::launch
