// SPDX-License-Identifier: Apache-2.0
// The attempt of a job on this host: starts its ranks as the coordinator orders, and says what becomes of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "json/json.hpp"
#include "launch/job.hpp"
#include "launch/plan/options.hpp"
#include "launch/ranks/guardian.hpp"

namespace accel::launch {

class HostAttempt {
 public:
  HostAttempt(const LaunchOptions& options, const Guardian& guardian, const sigset_t& signal_mask)
      : options_(options), guardian_(guardian), signal_mask_(signal_mask) {}

  // Error if the ranks cannot be started; failed_start() is what the coordinator gets then.
  void start(const Json& order);
  std::vector<Json> failed_start(const Error& error) const;
  void drop() { job_.reset(); }

  // Null before the first attempt and after drop().
  Job* job() { return job_ ? &*job_ : nullptr; }
  const Job* job() const { return job_ ? &*job_ : nullptr; }
  bool is_running() const { return job_ && job_->is_running(); }

  // A message about this attempt.
  Json message(const char* type, Json::Members members = {}) const;
  bool is_meant_by(const Json& message) const;
  // The events since the last call, for the coordinator. A failure is reported on stderr at the end.
  std::vector<Json> news();

 private:
  HostRanks ranks_in(const Json& order) const;

  const LaunchOptions& options_;
  const Guardian& guardian_;
  const sigset_t& signal_mask_;
  int number_ = 0;
  int first_rank_ = 0;
  std::optional<Job> job_;
  bool has_told_failure_ = false, has_told_end_ = false;
};

}  // namespace accel::launch
