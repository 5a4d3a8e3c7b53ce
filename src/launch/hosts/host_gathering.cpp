// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/host_gathering.hpp"

namespace accel::launch {

void HostGathering::restart() {
  join_deadline_ = Deadline(options_.join_timeout);
  last_call_.reset();
  next_report_ = Deadline(kReport);
}

bool HostGathering::is_complete(int hosts, bool is_first_attempt) {
  if (hosts < options_.min_hosts) {
    last_call_.reset();
    return false;
  }
  if (hosts >= options_.max_hosts) return true;
  if (!options_.is_elastic) return false;
  if (!last_call_) last_call_.emplace(is_first_attempt ? options_.last_call : Deadline::Milliseconds(0));
  return last_call_->passed();
}

bool HostGathering::take_report() {
  if (!next_report_.passed()) return false;
  next_report_ = Deadline(kReport);
  return true;
}

}  // namespace accel::launch
