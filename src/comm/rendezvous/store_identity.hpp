// SPDX-License-Identifier: Apache-2.0
// Who asks a store.
#pragma once

#include <string>

namespace accel::comm {

struct StoreIdentity {
  std::string who;     // "rank 1 of 3"
  std::string secret;  // of the job; may be empty
};

}  // namespace accel::comm
