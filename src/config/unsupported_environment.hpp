// SPDX-License-Identifier: Apache-2.0
// Checks for features of Accelerate that the environment asks for and this version lacks.
#pragma once

#include <string>

namespace accel {

// Throws UNSUPPORTED for the first variable of such a feature, which would be ignored silently otherwise.
void refuse_unsupported_environment();

// Throws UNSUPPORTED for a backend of torch.compile that compiles. `place` says where it is written.
void refuse_compilation(const std::string& place, const std::string& backend);

}  // namespace accel
