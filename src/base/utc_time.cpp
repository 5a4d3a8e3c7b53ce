// SPDX-License-Identifier: Apache-2.0
#include "base/utc_time.hpp"

#include <cstdio>
#include <ctime>

namespace accel {

std::string utc_time(const timeval& now) {
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[64];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%03dZ", static_cast<int>(now.tv_usec / 1000));
  return text;
}

}  // namespace accel
