// SPDX-License-Identifier: Apache-2.0
#include "logging/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/environment.hpp"
#include "base/text_check.hpp"
#include "base/write_whole.hpp"

namespace accel::track {
namespace {

constexpr size_t kUsualWidth = 80;

// The sequence at the start of valid UTF-8: how many bytes it has, and its code point.
struct Character {
  size_t bytes;
  uint32_t code;
};

Character first_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (bytes == 1 || bytes > text.size()) return {1, first};
  uint32_t code = first & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; i++) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fU);
  return {bytes, code};
}

// After Unicode's East Asian Width and the blocks of combining marks, which change slowly.
size_t columns_of(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  constexpr Range kCombining[] = {
      {0x300, 0x36f}, {0x1ab0, 0x1aff}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}};
  constexpr Range kWide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xac00, 0xd7a3},
                             {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
                             {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
  const auto has = [code](const Range& range) { return code >= range.first && code <= range.last; };
  if (std::any_of(std::begin(kCombining), std::end(kCombining), has)) return 0;
  return std::any_of(std::begin(kWide), std::end(kWide), has) ? 2 : 1;
}

}  // namespace

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    columns += columns_of(character.code);
    text.remove_prefix(character.bytes);
  }
  return columns;
}

std::string cut_to_columns(std::string_view text, size_t columns) {
  size_t used = 0, bytes = 0;
  while (bytes < text.size()) {
    const Character character = first_character(text.substr(bytes));
    used += columns_of(character.code);
    if (used > columns) break;
    bytes += character.bytes;
  }
  return std::string(text.substr(0, bytes));
}

std::string printable(std::string_view text) {
  std::string shown = repaired_text(text);
  for (char& character : shown)
    if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) character = ' ';
  return shown;
}

bool speaks_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const auto locale = environment_text(variable)) {
      std::string lower = *locale;
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](unsigned char letter) { return std::tolower(letter); });
      return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
    }
  return false;
}

class Terminal::Line {
 public:
  std::string text;
};

Terminal& Terminal::of_stderr() {
  alignas(Terminal) static unsigned char storage[sizeof(Terminal)];
  static Terminal* const instance = ::new (storage) Terminal(STDERR_FILENO);
  return *instance;
}

bool Terminal::is_terminal() const {
  return isatty(descriptor_) == 1 && environment_text("TERM").value_or("dumb") != "dumb";
}

size_t Terminal::width() const {
  winsize size{};
  return ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualWidth;
}

std::shared_ptr<Terminal::Line> Terminal::open_line() {
  auto line = std::make_shared<Line>();
  const std::lock_guard<std::mutex> lock(mutex_);
  lines_.push_back(line.get());
  return line;
}

void Terminal::show(Line& line, std::string text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  line.text = std::move(text);
  draw("");
}

void Terminal::close(Line& line, bool leave) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lines_.erase(std::remove(lines_.begin(), lines_.end(), &line), lines_.end());
  draw(leave && !line.text.empty() ? line.text + "\n" : "");
}

bool Terminal::print(std::string_view lines) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (columns_on_screen_.empty()) return write_whole(descriptor_, lines) == lines.size();
  draw(std::string(lines));
  return true;
}

// A terminal that was made narrower has broken the lines, which are more rows now.
std::string Terminal::up_to_first() const {
  if (columns_on_screen_.empty()) return "";
  const size_t columns = width();
  size_t rows = 0;
  for (const size_t used : columns_on_screen_) rows += std::max<size_t>((used + columns - 1) / columns, 1);
  const std::string up = rows > 1 ? "\x1b[" + std::to_string(rows - 1) + "A" : "";
  return "\r" + up + "\x1b[J";  // and clears from there
}

// Everything in one write, so that no other process's output gets in between.
void Terminal::draw(const std::string& before) {
  std::string output = up_to_first() + before;
  columns_on_screen_.clear();
  for (const Line* line : lines_) {
    if (line->text.empty()) continue;
    if (!columns_on_screen_.empty()) output += '\n';
    output += line->text;
    columns_on_screen_.push_back(columns_of(line->text));
  }
  write_whole(descriptor_, output);
}

}  // namespace accel::track
