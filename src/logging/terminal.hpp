// SPDX-License-Identifier: Apache-2.0
// The terminal on stderr: the lines of open progress bars stay at its end, and what is logged appears above them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace accel::track {

// The columns that a text takes: of East Asian wide characters two, of combining ones none.
size_t columns_of(std::string_view text);

// At most `columns` columns of it.
std::string cut_to_columns(std::string_view text, size_t columns);

// One line that a terminal shows as it is: control characters become spaces, bad UTF-8 U+FFFD.
std::string printable(std::string_view text);

// Whether LC_ALL, LC_CTYPE or LANG names UTF-8, which a program that never called setlocale() can still read.
bool speaks_utf8();

// All functions may be called from any thread. Errors are ignored: a terminal that is gone must not stop a training.
class Terminal {
 public:
  // The terminal at descriptor 2, for the whole process; never destroyed.
  static Terminal& of_stderr();

  explicit Terminal(int descriptor) : descriptor_(descriptor) {}
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // One on which lines can be written again, which TERM=dumb cannot.
  bool is_terminal() const;
  // 80 where nobody tells.
  size_t width() const;

  // A line at the end, until it is closed; below those that are open.
  class Line;
  std::shared_ptr<Line> open_line();
  void show(Line& line, std::string text);
  // Its last text becomes part of what was printed, or vanishes.
  void close(Line& line, bool leave);

  // Whole lines, above the open ones. False if they cannot be written; errno says why.
  bool print(std::string_view lines);

 private:
  std::string up_to_first() const;
  void draw(const std::string& before);

  const int descriptor_;
  mutable std::mutex mutex_;
  std::vector<Line*> lines_;               // the open ones
  std::vector<size_t> columns_on_screen_;  // of each line that is on the screen; the cursor is behind the last one
};

}  // namespace accel::track
