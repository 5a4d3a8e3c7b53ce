// SPDX-License-Identifier: Apache-2.0
// Copies batches to a device, asynchronously where the device has streams.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <optional>

#include "comm/backend/communication_stream.hpp"

namespace accel::data {

class DeviceCopy {
 public:
  DeviceCopy(c10::Device device, bool non_blocking);

  // Whether copies overlap computations, so that it pays to begin them early.
  bool is_asynchronous() const { return side_.has_value(); }

  struct Started {
    c10::IValue value;
    std::optional<c10::Event> done;
    c10::IValue source;    // lives until the copy is done
    bool is_held = false;  // the host waits for the copy, as it may change the source afterwards
  };
  Started start(const c10::IValue& value);
  // The value on the device, ready for what this thread computes next.
  c10::IValue finish(Started started) const;

 private:
  c10::Device device_;
  bool non_blocking_;
  std::optional<comm::CommunicationStream> side_;
};

}  // namespace accel::data
