// `accel env`: what a bug report should say about the machine.
#pragma once

#include <string>

namespace accel::launch {

std::string environment_report();

}  // namespace accel::launch
