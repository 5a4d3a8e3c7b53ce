// SPDX-License-Identifier: Apache-2.0
#include "accelerator/randomness.hpp"

#include "base/error.hpp"
#include "state/random.hpp"

namespace accel::accelerator {

void Randomness::set_seed(int64_t seed, bool device_specific) const {
  require(seed >= 0, Status::kInvalidArgument, "seed is ", seed, "; expected 0 or more");
  const int64_t own = seed + (device_specific ? state_.groups().random_stream() : 0);
  state::set_seed_of_default_generators(static_cast<uint64_t>(own));
  for (const auto& callback : callbacks_) callback(own);
}

}  // namespace accel::accelerator
