// SPDX-License-Identifier: Apache-2.0
// The line of a progress bar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace accel::track {

// The state of a bar.
struct ProgressState {
  int64_t count = 0;
  std::optional<int64_t> total;
  double seconds = 0;          // since it was opened
  std::optional<double> rate;  // a second, of late
  std::optional<double> remaining_seconds;
};

// None stands for the memory of the process.
using ProgressValue = std::variant<std::monostate, bool, int64_t, double, std::string>;
using ProgressValues = std::vector<std::pair<std::string, ProgressValue>>;

// "train:  40% |####      | 40/100 [00:12<00:18, 3.3 steps/s, loss 1.23]", in so many columns.
std::string progress_line(const std::string& label, const std::string& unit, const ProgressState& state,
                          const ProgressValues& values, size_t columns, bool is_utf8);

}  // namespace accel::track
