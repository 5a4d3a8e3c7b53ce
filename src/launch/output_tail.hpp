// The last part of the output of a rank, in bounded memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace accel::launch {

class OutputTail {
 public:
  // Reads from a descriptor that does not block until there is nothing more for now. False: the other side has closed
  // it.
  bool read_from(int descriptor);

  std::vector<std::string> last_lines(size_t most) const;

 private:
  std::string text_;
};

}  // namespace accel::launch
