// Text that JSON documents can hold without loss.
#pragma once

#include <cstddef>
#include <string_view>

namespace accel {

// In plain text only a NUL is forbidden, because cJSON's strings end there. In a JSON document so is every other
// control character that is no white space, and the escape \u0000.
enum class TextKind { kPlain, kJson };

// The position of the first byte that is no UTF-8 or is forbidden; the size when there is none.
size_t first_bad_byte(std::string_view text, TextKind kind);

}  // namespace accel
