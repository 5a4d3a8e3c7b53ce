// SPDX-License-Identifier: Apache-2.0
// The commands of the program `accel-models`. Each returns an exit status; errors are exceptions.
#pragma once

#include <string>
#include <vector>

namespace accel::program {

int run_text(const std::vector<std::string>& arguments);   // accel run
int run_embed(const std::vector<std::string>& arguments);  // accel embed
int run_serve(const std::vector<std::string>& arguments);  // accel serve

}  // namespace accel::program
