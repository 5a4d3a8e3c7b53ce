// What the environment asks for and this version has not.
#pragma once

namespace accel {

// Throws UNSUPPORTED for the first variable that asks for a way of training of Accelerate's that does not exist here:
// it would be ignored without a word.
void refuse_unsupported_environment();

}  // namespace accel
