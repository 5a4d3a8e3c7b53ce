// SPDX-License-Identifier: Apache-2.0
// A stage of a step that a peer of this host has to finish: what a collective in the host segment waits for.
#pragma once

#include <cstdint>

#include "comm/ucx/host/futex.hpp"
#include "comm/ucx/host/host_segment.hpp"

namespace accel::comm::ucx {

class SegmentStep {
 public:
  SegmentStep(const HostSegment& segment, int peer, HostSegment::Stage stage, uint32_t number)
      : segment_(&segment), peer_(peer), stage_(stage), number_(number) {}

  bool is_reached() const { return is_reached_by(peer_); }
  bool is_reached_by(int peer) const { return segment_->reached(peer, stage_, number_); }
  // See HostSegment::begin_sleep().
  FutexWait begin_sleep() const { return segment_->begin_sleep(peer_, stage_); }
  void end_sleep() const { segment_->end_sleep(peer_, stage_); }

 private:
  const HostSegment* segment_;
  int peer_;
  HostSegment::Stage stage_;
  uint32_t number_;
};

}  // namespace accel::comm::ucx
