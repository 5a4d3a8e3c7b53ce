// Progress bars.
#pragma once

namespace accel::track {

class ProgressBar {};

}  // namespace accel::track
