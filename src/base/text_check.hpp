// Text that files and values can hold without loss.
#pragma once

#include <cstddef>
#include <string_view>

namespace accel {

// The position of the first byte that is no UTF-8, or is a NUL, where C strings end; the size when there is none.
size_t first_bad_byte(std::string_view text);

}  // namespace accel
