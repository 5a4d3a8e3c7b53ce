#include "launch/ranks/job_token.hpp"

#include <iomanip>
#include <random>
#include <sstream>

namespace accel::launch {

std::string job_token() {
  std::random_device random;
  std::ostringstream token;
  for (int word = 0; word < 4; ++word) token << std::hex << std::setw(8) << std::setfill('0') << random();
  return token.str();
}

}  // namespace accel::launch
