#include "base/log_variable.hpp"

namespace accel {

void log_to_variable(int /*level*/, const std::string& /*message*/) noexcept {}

}  // namespace accel
