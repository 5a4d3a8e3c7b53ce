// Joins the Chrome traces of ranks.
#pragma once

namespace accel::track {}  // namespace accel::track
