// SPDX-License-Identifier: Apache-2.0
// The wait for the hosts of an attempt: whether there are enough, how long others may still come, and what is said
// meanwhile.
#pragma once

#include <optional>

#include "base/deadline.hpp"
#include "launch/plan/host_options.hpp"

namespace accel::launch {

class HostGathering {
 public:
  explicit HostGathering(const HostOptions& options) : options_(options) {}

  void restart();
  // Whether the attempt can begin with so many hosts. Later attempts go on with those who are there: others may come at
  // any time.
  bool is_complete(int hosts, bool is_first_attempt);
  // Hosts were missing for too long.
  bool has_failed() const { return join_deadline_.passed(); }
  Deadline::Milliseconds time_for_joining() const { return join_deadline_.total(); }
  // Whether it is time to say who is missing.
  bool take_report();

 private:
  static constexpr Deadline::Milliseconds kReport{5000};

  const HostOptions& options_;
  Deadline join_deadline_{options_.join_timeout};
  std::optional<Deadline> last_call_;
  Deadline next_report_{kReport};
};

}  // namespace accel::launch
