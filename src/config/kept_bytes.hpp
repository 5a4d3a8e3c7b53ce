// What structs of options point to and nobody owns.
#pragma once

#include <string>

namespace accel {

// For as long as the process lives, one copy of each content. Their amount is bounded by what programs and
// configuration files say.
const char* kept_bytes(std::string bytes);

}  // namespace accel
