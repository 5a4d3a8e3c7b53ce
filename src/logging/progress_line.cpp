// SPDX-License-Identifier: Apache-2.0
#include "logging/progress_line.hpp"

#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "logging/process_memory.hpp"
#include "logging/terminal.hpp"

namespace accel::track {
namespace {

constexpr size_t kMostBarColumns = 40, kLeastBarColumns = 4;

template <typename... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  char text[64];
  std::snprintf(text, sizeof text, format, arguments...);
  return text;
}

// "00:12", "1:02:03", "2d 01:02:03"
std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::min(std::max(seconds, 0.0), 3e9));
  const long long days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60, rest = whole % 60;
  if (days > 0) return formatted("%lldd %02lld:%02lld:%02lld", days, hours, minutes, rest);
  if (hours > 0) return formatted("%lld:%02lld:%02lld", hours, minutes, rest);
  return formatted("%02lld:%02lld", minutes, rest);
}

std::string rate_text(double rate) { return formatted(rate < 1000 ? "%.3g" : "%.0f", rate); }

std::string bytes_text(int64_t bytes) {
  constexpr double kMega = 1e6, kGiga = 1e9;
  const auto number = static_cast<double>(bytes);
  return number < kGiga ? formatted("%.0f MB", number / kMega) : formatted("%.2f GB", number / kGiga);
}

std::string value_text(const ProgressValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return formatted("%.4g", *number);
  if (const auto* words = std::get_if<std::string>(&value)) return *words;
  return bytes_text(process_memory().resident);
}

std::string bar_text(double fraction, size_t columns, bool is_utf8) {
  constexpr const char* kEighths[] = {"", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589"};
  const auto eighths = static_cast<size_t>(fraction * static_cast<double>(columns * 8));
  const size_t full = is_utf8 ? eighths / 8 : static_cast<size_t>(fraction * static_cast<double>(columns));
  const size_t rest = is_utf8 ? eighths % 8 : 0;
  std::string bar;
  for (size_t i = 0; i < full; i++) bar += is_utf8 ? "\u2588" : "#";
  bar += kEighths[rest];
  return bar + std::string(columns - full - (rest > 0 ? 1 : 0), ' ');
}

// Where there is no room the label is cut first.
std::string fitted(const std::string& front, const std::string& back, size_t columns) {
  constexpr size_t kLeastLabel = 8;
  const size_t room = columns - std::min(columns, columns_of(back));
  return cut_to_columns(cut_to_columns(front, std::max(room, kLeastLabel)) + back, columns);
}

}  // namespace

std::string progress_line(const std::string& label, const std::string& unit, const ProgressState& state,
                          const ProgressValues& values, size_t columns, bool is_utf8) {
  const bool has_total = state.total && *state.total > 0 && state.count <= *state.total;
  std::string front = label.empty() ? "" : label + ": ";
  std::string back = text(state.count);
  if (has_total)
    back += text("/", *state.total);
  else
    back += " " + unit;
  back += " [" + duration_text(state.seconds);
  if (has_total) back += "<" + (state.remaining_seconds ? duration_text(*state.remaining_seconds) : "?");
  back += ", " + (state.rate ? rate_text(*state.rate) : "?") + " " + unit + "/s";
  for (const auto& [name, value] : values) back += ", " + name + " " + value_text(value);
  back += ']';
  back = printable(back);
  front = printable(front);
  if (!has_total) return fitted(front, back, columns);
  const double fraction = static_cast<double>(state.count) / static_cast<double>(*state.total);
  front += formatted("%3d%% ", static_cast<int>(fraction * 100));
  const size_t used = columns_of(front) + columns_of(back) + 3;  // "|", "|" and a space
  if (used + kLeastBarColumns > columns) return fitted(front, back, columns);
  return front + "|" + bar_text(fraction, std::min(columns - used, kMostBarColumns), is_utf8) + "| " + back;
}

}  // namespace accel::track
