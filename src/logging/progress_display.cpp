// SPDX-License-Identifier: Apache-2.0
#include "logging/progress_display.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace accel::track {

ProgressDisplay::ProgressDisplay(const ProgressSettings& settings, bool shows, Show show, Terminal& terminal)
    : show_(std::move(show)),
      terminal_(terminal),
      leaves_(settings.leave),
      is_utf8_(speaks_utf8()),
      is_terminal_(!show_ && terminal.is_terminal()),
      width_(settings.width.value ? std::optional<size_t>(static_cast<size_t>(*settings.width)) : std::nullopt),
      shows_(shows && !settings.disable.value_or(!show_ && !is_terminal_)) {}

void ProgressDisplay::open() {
  if (is_terminal_) line_ = terminal_.open_line();
}

size_t ProgressDisplay::columns() const {
  if (width_) return *width_;
  return line_ ? std::max<size_t>(terminal_.width(), 2) - 1 : terminal_.width();
}

void ProgressDisplay::show(std::string line, bool is_last) {
  if (show_) {
    show_(line.c_str(), is_last);
  } else if (line_) {
    terminal_.show(*line_, std::move(line));
    if (is_last) terminal_.close(*line_, leaves_);
  } else {
    terminal_.print(line + "\n");
  }
}

void ProgressDisplay::write(const std::string& line) {
  if (!shows_) return;
  errno = 0;
  require(terminal_.print(line + "\n"), Status::kIo, "cannot write to stderr: ", std::strerror(errno));
}

}  // namespace accel::track
