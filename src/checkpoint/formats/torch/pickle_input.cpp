// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_input.hpp"

#include "base/number_text.hpp"

namespace accel::checkpoint {

std::string_view PickleInput::take(uint64_t size) {
  if (size > bytes_.size() - position_)
    corrupt("it is cut short: ", size, " bytes are expected, ", bytes_.size() - position_, " are left");
  const std::string_view taken = bytes_.substr(position_, size);
  position_ += size;
  return taken;
}

uint64_t PickleInput::take_integer(size_t bytes) {
  const std::string_view taken = take(bytes);
  uint64_t integer = 0;
  for (size_t i = bytes; i-- > 0;) integer = integer << 8 | static_cast<unsigned char>(taken[i]);
  return integer;
}

std::string_view PickleInput::take_line() {
  const size_t end = bytes_.find('\n', position_);
  if (end == std::string_view::npos) corrupt("it is cut short: a line has no end");
  const std::string_view line = take(end - position_);
  take(1);
  return line;
}

uint64_t PickleInput::take_index_line() {
  const std::string_view line = take_line();
  uint64_t index = 0;
  if (!parse_whole(line, index)) corrupt("'", line, "' is not a number of an object");
  return index;
}

}  // namespace accel::checkpoint
