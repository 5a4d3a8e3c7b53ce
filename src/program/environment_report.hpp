// `accel env`: a description of the machine for bug reports.
#pragma once

#include <string>

namespace accel::program {

std::string environment_report();

}  // namespace accel::program
