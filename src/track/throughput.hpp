// Throughput: the tokens that a rank trains with, and what they cost.
#pragma once

namespace accel::track {

class Throughput {};

}  // namespace accel::track
