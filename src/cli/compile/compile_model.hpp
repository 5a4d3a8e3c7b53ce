// SPDX-License-Identifier: Apache-2.0
// The program in Python that makes a package: compile_model.py, embedded.
#pragma once

namespace accel::program {

const char* compile_model_program();

}  // namespace accel::program
