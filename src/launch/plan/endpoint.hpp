// SPDX-License-Identifier: Apache-2.0
// Where a program listens, as users write it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace accel::launch {

struct Endpoint {
  std::string host;
  std::optional<std::string> port;  // what stands behind the colon
};

// "host", "host:29500", "[fd00::1]:29500", and an address of IPv6 without a port: "fd00::1" or "[fd00::1]".
Endpoint parse_endpoint(std::string_view text);

}  // namespace accel::launch
