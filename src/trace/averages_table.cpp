// SPDX-License-Identifier: Apache-2.0
#include "trace/averages_table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "base/error.hpp"

namespace accel::track {
namespace {

enum class Unit { kCount, kMicroseconds, kBytes, kOperations };

struct Column {
  const char* key;
  const char* title;
  Unit unit;
  bool is_always_shown;
};
constexpr std::array<Column, 7> kColumns = {{{"self_cpu_us", "Self CPU", Unit::kMicroseconds, false},
                                             {"cpu_us", "CPU", Unit::kMicroseconds, true},
                                             {"count", "Calls", Unit::kCount, true},
                                             {"device_us", "Device", Unit::kMicroseconds, false},
                                             {"self_cpu_memory", "Self memory", Unit::kBytes, false},
                                             {"flops", "FLOP", Unit::kOperations, false},
                                             {"bytes", "Bytes", Unit::kBytes, false}}};
constexpr size_t kWidestName = 48;

std::string scaled(double value, double step, const std::vector<const char*>& units) {
  size_t unit = 0;
  while (std::abs(value) >= step && unit + 1 < units.size()) {
    value /= step;
    unit++;
  }
  char shown[48];
  std::snprintf(shown, sizeof shown,
                unit == 0 && value == static_cast<double>(static_cast<int64_t>(value)) ? "%.0f%s" : "%.2f%s", value,
                units[unit]);
  return shown;
}

std::string format_value(double value, Unit unit) {
  switch (unit) {
    case Unit::kMicroseconds:
      return scaled(value, 1000, {" us", " ms", " s"});
    case Unit::kBytes:
      return scaled(value, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
    case Unit::kOperations:
      return scaled(value, 1000, {"", " K", " M", " G", " T", " P"});
    case Unit::kCount:
      break;
  }
  return scaled(value, 1e18, {""});
}

std::string percent(double share) {
  char shown[16];
  std::snprintf(shown, sizeof shown, "%.1f", 100 * share);
  return shown;
}

struct Row {
  std::string name, kind;
  std::array<double, kColumns.size()> values{};
};

std::vector<Row> rows_of(const Json& averages) {
  require(averages.items() != nullptr, Status::kTypeMismatch,
          "averages is not a list; expected what "
          "accel_profile_key_averages() gives");
  std::vector<Row> rows;
  for (const Json& item : *averages.items()) {
    require(item.members() != nullptr, Status::kTypeMismatch, "averages has an item that is not a map");
    Row row;
    try {
      row.name = json_text(item, "name", "");
      row.kind = json_text(item, "kind", "");
      for (size_t i = 0; i < kColumns.size(); i++) row.values[i] = json_number(item, kColumns[i].key, 0);
    } catch (const Error& error) {
      fail(Status::kTypeMismatch, "averages: ", error.message());
    }
    const Json* const shapes = json_member(item, "shapes");
    if (shapes != nullptr && !shapes->is_null()) row.name += " " + print_json(*shapes);
    if (row.name.size() > kWidestName) row.name = row.name.substr(0, kWidestName - 3) + "...";
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string padded(const std::string& text, size_t width, bool is_left) {
  const std::string blanks(width > text.size() ? width - text.size() : 0, ' ');
  return is_left ? text + blanks : blanks + text;
}

}  // namespace

std::string averages_table(const Json& averages, const std::string& sort_by, size_t row_limit) {
  const auto* const sorted =
      std::find_if(kColumns.begin(), kColumns.end(), [&](const Column& column) { return sort_by == column.key; });
  if (sorted == kColumns.end()) {
    std::string known;
    for (const Column& column : kColumns) known += (known.empty() ? "" : ", ") + std::string(column.key);
    fail(Status::kInvalidArgument, "sort_by is '", sort_by, "'; expected one of ", known);
  }
  const auto by = static_cast<size_t>(sorted - kColumns.begin());
  std::vector<Row> rows = rows_of(averages);
  std::stable_sort(rows.begin(), rows.end(),
                   [by](const Row& one, const Row& other) { return one.values[by] > other.values[by]; });
  double total = 0;
  for (const Row& row : rows) total += row.values[0];
  std::vector<std::vector<std::string>> cells = {{"Name", "Kind"}};
  if (total > 0) cells[0].emplace_back("Self CPU %");
  std::vector<size_t> columns;
  for (size_t i = 0; i < kColumns.size(); i++) {
    const bool is_used = std::any_of(rows.begin(), rows.end(), [i](const Row& row) { return row.values[i] != 0; });
    if (!kColumns[i].is_always_shown && !is_used) continue;
    columns.push_back(i);
    cells[0].emplace_back(kColumns[i].title);
  }
  for (const Row& row : rows) {
    if (row_limit > 0 && cells.size() > row_limit) break;
    std::vector<std::string> line = {row.name, row.kind};
    if (total > 0) line.push_back(percent(row.values[0] / total));
    for (const size_t i : columns) line.push_back(format_value(row.values[i], kColumns[i].unit));
    cells.push_back(std::move(line));
  }
  std::string table;
  for (const auto& line : cells) {
    std::string written;
    for (size_t i = 0; i < line.size(); i++) {
      size_t width = 0;
      for (const auto& other : cells) width = std::max(width, other[i].size());
      written += (i == 0 ? "" : "  ") + padded(line[i], width, i < 2);
    }
    table += written.substr(0, written.find_last_not_of(' ') + 1) + "\n";
  }
  return table;
}

}  // namespace accel::track
