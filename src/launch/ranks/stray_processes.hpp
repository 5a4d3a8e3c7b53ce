// SPDX-License-Identifier: Apache-2.0
// Processes that ranks have started and that left the rank's process group, as daemons do: they carry a mark in their
// environment.
#pragma once

#include <string>

namespace accel::launch {

// A variable that ranks get, with a value that no other launcher has.
inline constexpr char kMarkVariable[] = "ACCEL_LAUNCHER";
std::string new_mark();

// Kills all that have the mark, and what they start meanwhile. Linux tells the environment of one's own processes
// alone.
void kill_strays(const std::string& mark);

}  // namespace accel::launch
