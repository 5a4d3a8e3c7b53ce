// Loggers: messages of the program, with the rank.
#pragma once

namespace accel::track {

class Logger {};

}  // namespace accel::track
