// SPDX-License-Identifier: Apache-2.0
// The name of this host, for reports that name where a rank runs.
#pragma once

#include <string>

namespace accel {

std::string host_name();

}  // namespace accel
