// SPDX-License-Identifier: Apache-2.0
// Where a progress bar is shown: by a function, in a line of the terminal, or in lines below each other where stderr is
// not a terminal.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/generated/settings/progress/progress.hpp"
#include "logging/terminal.hpp"

namespace accel::track {

class ProgressDisplay {
 public:
  // Gets a line, and whether it is the last one. Empty: the lines go to stderr.
  using Show = std::function<void(const char* line, bool is_last)>;

  // `shows`: whether this rank shows anything at all.
  ProgressDisplay(const ProgressSettings& settings, bool shows, Show show, Terminal& terminal);

  bool shows() const { return shows_; }
  // Opens the line on the terminal, before anything is shown.
  void open();
  size_t columns() const;
  bool is_utf8() const { return is_utf8_; }
  void show(std::string line, bool is_last);
  // A line above the open bars. kIo
  void write(const std::string& line);

 private:
  const Show show_;
  Terminal& terminal_;
  const bool leaves_, is_utf8_, is_terminal_;
  const std::optional<size_t> width_;
  const bool shows_;
  std::shared_ptr<Terminal::Line> line_;  // null where it is not a terminal
};

}  // namespace accel::track
