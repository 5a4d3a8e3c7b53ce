// SPDX-License-Identifier: Apache-2.0
// Pictures of a run as they are embedded in the page.
#pragma once

#include <cstddef>
#include <string>

namespace accel::report {

// "data:image/png;base64,..." of `file`, a path inside of `folder` without symbolic links. An Error says why it is not
// shown: what is elsewhere, larger than `most_bytes`, or neither PNG, JPEG, GIF, WebP nor SVG.
std::string embedded_picture(const std::string& folder, const std::string& file, size_t most_bytes);

}  // namespace accel::report
