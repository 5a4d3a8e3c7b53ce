// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/csv_dataset.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/text_check.hpp"
#include "data/datasets/csv_row.hpp"
#include "data/datasets/file_list.hpp"
#include "data/item_structure.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

constexpr int64_t kRowsForTypes = 1000;

std::string_view trimmed(std::string_view cell) {
  const size_t begin = std::min(cell.find_first_not_of(" \t"), cell.size());
  return cell.substr(begin, cell.find_last_not_of(" \t") + 1 - begin);
}

template <typename Number>
std::optional<Number> number_in(std::string_view cell) {
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  Number number{};
  const auto result = number_from_chars(cell.data(), cell.data() + cell.size(), number);
  if (result.ec != std::errc() || result.ptr != cell.data() + cell.size()) return std::nullopt;
  return number;
}

std::optional<bool> truth_in(std::string_view cell) {
  std::string lower(cell);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (lower == "true") return true;
  if (lower == "false") return false;
  return std::nullopt;
}

const char* type_name(const CsvType& type) { return type ? c10::toString(*type) : "text"; }

c10::IValue value_of(int64_t number, c10::ScalarType type) {
  if (type == at::kLong) return number;
  const at::Tensor value = at::scalar_tensor(number, at::kLong).to(type);
  return value.to(at::kLong).item<int64_t>() == number ? c10::IValue(value) : c10::IValue();
}

c10::IValue value_of(double number, c10::ScalarType type) {
  if (type == at::kDouble) return number;
  return at::scalar_tensor(number, at::kDouble).to(type);
}

// The beginning of a cell for a message.
std::string_view shortened(std::string_view cell) {
  constexpr size_t kMost = 80;
  return cell.substr(0, first_bad_byte(cell.substr(0, kMost)));  // no character is cut in two
}

// None when the cell is no such number.
c10::IValue value_in(std::string_view cell, c10::ScalarType type) {
  if (type == at::kBool) {
    const auto truth = truth_in(cell);
    return truth ? c10::IValue(*truth) : c10::IValue();
  }
  if (at::isIntegralType(type, false)) {
    const auto number = number_in<int64_t>(cell);
    return number ? value_of(*number, type) : c10::IValue();
  }
  const auto number = number_in<double>(cell);
  return number ? value_of(*number, type) : c10::IValue();
}

RowEnd row_end_of(char delimiter) {
  return [delimiter](std::string_view text, size_t begin) { return csv_row_end(text, begin, delimiter); };
}

}  // namespace

CsvDataset::CsvDataset(const std::string& path, const std::optional<std::string>& suffix, const CsvOptions& options)
    : RowDataset(RowIndex(find_files(path, suffix, "CSV"), row_end_of(static_cast<char>(options.delimiter)),
                          options.has_header)),
      options_(options) {
  require(options.delimiter != '"' && options.delimiter != '\n' && options.delimiter != '\r' && options.delimiter > 0 &&
              options.delimiter < 0x80,
          Status::kInvalidArgument, "the delimiter is the character ", options.delimiter,
          "; expected one of ASCII that is not a quote or a newline");
  read_header();
  choose_types();
  if (options.skip_malformed) skip_malformed();
}

void CsvDataset::read_header() {
  Cells cells;
  for (size_t file = 0; file < rows().num_files(); ++file) {
    if (!options_.has_header) break;
    const auto header = rows().header(file);
    require(header.has_value(), Status::kCorrupt, "'", rows().path(file),
            "' is empty; expected a header in its first row");
    require(first_bad_byte(*header) == header->size(), Status::kCorrupt, "'", rows().path(file),
            "', row 1 is not text; expected UTF-8 without NUL");
    try {
      split_csv_row(*header, delimiter(), cells);
    } catch (const Error& error) {
      fail(error.status(), "'", rows().path(file), "', row 1: ", error.message());
    }
    if (file == 0) names_ = cells;
    require(cells == names_, Status::kCorrupt, "'", rows().path(file), "', row 1 is another header than that of '",
            rows().path(0), "'; expected files with the same columns");
  }
  if (!options_.has_header && rows().size() > 0) {
    split(0, cells);
    for (size_t column = 0; column < cells.size(); ++column) names_.push_back(std::to_string(column));
  }
  std::set<std::string> seen;
  for (const auto& name : names_)
    require(seen.insert(name).second, Status::kCorrupt, "'", rows().path(0), "', row 1 names the column '", name,
            "' twice; expected names that differ");
}

void CsvDataset::choose_types() {
  std::vector<Cells> samples;
  for (int64_t index = 0; index < std::min(rows().size(), kRowsForTypes); ++index) {
    samples.emplace_back();
    try {
      split(index, samples.back());
    } catch (const Error&) {
      samples.pop_back();  // is reported when it is read
    }
  }
  for (size_t column = 0; column < names_.size(); ++column) types_.push_back(inferred_type(column, samples));
  for (const auto& [name, type] : options_.types) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    require(found != names_.end() || rows().size() == 0, Status::kNotFound, "a type is given for the column '", name,
            "', which '", rows().path(0), "' does not have; its first one is '", names_.empty() ? "" : names_[0], "'");
    if (found != names_.end()) types_[static_cast<size_t>(found - names_.begin())] = type;
  }
}

CsvType CsvDataset::inferred_type(size_t column, const std::vector<Cells>& samples) const {
  for (const c10::ScalarType type : {at::kBool, at::kLong, at::kDouble}) {
    bool has_values = false, fits = true;
    for (const Cells& cells : samples) {
      const std::string_view cell = trimmed(cells[column]);
      if (cell.empty()) continue;
      has_values = true;
      if (value_in(cell, type).isNone()) fits = false;
      if (!fits) break;
    }
    if (has_values && fits) return type;
  }
  return std::nullopt;
}

void CsvDataset::split(int64_t index, Cells& cells) const {
  const std::string_view row = rows().row(index);
  const size_t bad = first_bad_byte(row);
  if (bad < row.size())
    fail(Status::kCorrupt, rows().location(index), " is not text at byte ", bad, "; expected UTF-8 without NUL");
  try {
    split_csv_row(row, delimiter(), cells);
  } catch (const Error& error) {
    fail(error.status(), rows().location(index), ": ", error.message());
  }
  if (!names_.empty() && cells.size() != names_.size())
    fail(Status::kCorrupt, rows().location(index), " has ", cells.size(), " cells; expected ", names_.size(),
         " as there are columns");
}

c10::IValue CsvDataset::convert(int64_t index, size_t column, std::string& cell) const {
  const CsvType& type = types_[column];
  if (!type) return std::move(cell);
  const std::string_view content = trimmed(cell);
  c10::IValue value;
  if (!content.empty()) {
    value = value_in(content, *type);
  } else if (options_.missing.value && *type != at::kBool) {
    const double number = *options_.missing;
    if (!at::isIntegralType(*type, false)) {
      value = value_of(number, *type);
    } else if (std::trunc(number) == number && std::abs(number) < 9.2e18) {
      value = value_of(static_cast<int64_t>(number), *type);
    }
  }
  if (value.isNone())
    fail(Status::kCorrupt, rows().location(index), ", column '", names_[column], "' is ",
         content.empty() ? "empty" : text("'", shortened(cell), "'"), "; expected ", type_name(type),
         content.empty() ? ", or an option `missing` that stands for it" : ", or a column of another type");
  return value;
}

c10::IValue CsvDataset::read_item(int64_t index) const {
  Cells cells;
  split(index, cells);
  ItemBuilder item(true);
  for (size_t column = 0; column < names_.size(); ++column)
    item.add(names_[column], {convert(index, column, cells[column]), {}});
  return item.take();
}

c10::IValue CsvDataset::read_batch(c10::IntArrayRef indices, const Collation& collation) const {
  if (collation.kind == Collation::Kind::kCallback || indices.empty()) return Dataset::read_batch(indices, collation);
  // Cells have no length that could be padded: the columns are collated without a map for each row.
  std::vector<std::vector<c10::IValue>> columns(names_.size());
  Cells cells;
  for (const int64_t index : indices) {
    split(index, cells);
    for (size_t column = 0; column < names_.size(); ++column)
      columns[column].push_back(convert(index, column, cells[column]));
  }
  Collation stacked;
  stacked.page_locked = collation.page_locked;
  ItemBuilder batch(true);
  for (size_t column = 0; column < names_.size(); ++column)
    batch.add(names_[column], {collate(stacked, std::move(columns[column]), indices), {}});
  return batch.take();
}

}  // namespace accel::data
