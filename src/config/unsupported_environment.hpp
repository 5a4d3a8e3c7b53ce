// Checks for features of Accelerate that the environment asks for and this version lacks.
#pragma once

namespace accel {

// Throws UNSUPPORTED for the first variable of such a feature, which would be ignored silently otherwise.
void refuse_unsupported_environment();

}  // namespace accel
