// SPDX-License-Identifier: Apache-2.0
// The last part of the output of a rank, in bounded memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace accel::launch {

class OutputTail {
 public:
  void add(std::string_view text);

  std::vector<std::string> last_lines(size_t most) const;

 private:
  std::string text_;
};

}  // namespace accel::launch
