// SPDX-License-Identifier: Apache-2.0
#include "track/comma_separated.hpp"

#include <cmath>
#include <string_view>

#include "base/number_text.hpp"
#include "os/file_bytes.hpp"
#include "os/replaced_file.hpp"
#include "os/sync_folder.hpp"
#include "track/run_folder.hpp"

namespace accel::track {
namespace {

void append_field(std::string& out, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out.append(text);
    return;
  }
  out += '"';
  for (const char byte : text) {
    if (byte == '"') out += '"';
    out += byte;
  }
  out += '"';
}

// Calls field(text) for those of a row, and returns where the next row begins.
template <typename Field>
size_t read_row(std::string_view all, size_t begin, const Field& field) {
  std::string text;
  bool is_quoted = false;
  for (size_t i = begin; i < all.size(); i++) {
    const char byte = all[i];
    if (is_quoted && byte == '"' && i + 1 < all.size() && all[i + 1] == '"') {
      text += all[i++];
    } else if (byte == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted && (byte == ',' || byte == '\n')) {
      field(text);
      text.clear();
      if (byte == '\n') return i + 1;
    } else {
      text += byte;
    }
  }
  return all.size();
}

}  // namespace

CommaSeparated::CommaSeparated(const Run& run)
    : folder_(run.folder), file_(run.folder + "/metrics.csv"), columns_{"step", "time"} {
  file_.remove_broken_line();
  read_columns();
}

void CommaSeparated::read_columns() {
  file_columns_ = 0;
  if (file_.written_bytes() == 0) return;
  const FileBytes bytes(file_.path());
  // A power cut leaves zeros where rows were not written yet. Neither those nor what follows was durable.
  const size_t zero = bytes.text().find('\0');
  if (zero != std::string_view::npos) {
    const size_t newline = bytes.text().substr(0, zero).rfind('\n');
    file_.shorten(newline == std::string_view::npos ? 0 : newline + 1);
    if (file_.written_bytes() == 0) return;
  }
  size_t number = 0;
  read_row(bytes.text(), 0, [&](const std::string& name) {
    if (number >= 2) column_of(name);
    number++;
  });
  file_columns_ = columns_.size();
}

size_t CommaSeparated::column_of(std::string_view name) {
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  numbers_.emplace(name, columns_.size());
  columns_.emplace_back(name);
  return columns_.size() - 1;
}

void CommaSeparated::write(const Record& record) {
  if (record.kind == Record::Kind::kConfiguration) configuration_ = print_json(record.document) + "\n";
  if (record.kind != Record::Kind::kValues || record.size() == 0) return;
  if (rows_.empty() || record.step == kNoStep || rows_.back().step != record.step)
    rows_.push_back({record.step, record.time, {}});
  for (size_t i = 0; i < record.size(); i++) {
    const Record::Value value = record.value(i);
    if (value.kind == Record::ValueKind::kHistogram) continue;
    std::string field;
    if (value.kind == Record::ValueKind::kText)
      append_field(field, value.text);
    else if (value.kind == Record::ValueKind::kInteger)
      field += text_of_number(value.integer);
    else if (std::isfinite(value.number))
      field += text_of_number(value.number);
    else
      field = nonfinite_word(value.number);
    row_bytes_ += field.size() + sizeof(std::pair<size_t, std::string>);
    rows_.back().fields.emplace_back(column_of(value.name), std::move(field));
  }
}

std::string CommaSeparated::header() const {
  std::string line;
  for (const std::string& name : columns_) {
    if (!line.empty()) line += ',';
    append_field(line, name);
  }
  return line + "\n";
}

void CommaSeparated::widen_file() {
  std::string widened = header();
  {
    const FileBytes bytes(file_.path());
    const std::string_view all = bytes.text();
    const std::string added(columns_.size() - file_columns_, ',');
    size_t begin = read_row(all, 0, [](const std::string&) {});
    while (begin < all.size()) {
      const size_t end = read_row(all, begin, [](const std::string&) {});
      widened.append(all.substr(begin, end - 1 - begin));
      widened += added + "\n";
      begin = end;
    }
  }
  replace_file(file_.path(), widened);
  file_.renew_if_removed();
  file_columns_ = columns_.size();
}

void CommaSeparated::append_row(const Row& row) {
  std::string& out = file_.buffer();
  std::vector<const std::string*> fields(columns_.size(), nullptr);
  for (const auto& [column, text] : row.fields) fields[column] = &text;
  if (row.step != kNoStep) out += text_of_number(row.step);
  out += ',';
  out += text_of_number(row.time);
  for (size_t i = 2; i < fields.size(); i++) {
    out += ',';
    if (fields[i] != nullptr) out += *fields[i];
  }
  out += '\n';
}

void CommaSeparated::flush(bool durable) {
  if (!configuration_.empty()) {
    make_folder(folder_);
    replace_file(folder_ + "/config.json", configuration_);
    sync_folder(folder_);
    configuration_.clear();
  }
  file_.flush(false);  // rows of the former columns
  if (file_.renew_if_removed()) file_columns_ = 0;
  if (!rows_.empty()) {
    if (file_columns_ == 0) {
      file_.buffer() += header();
      file_columns_ = columns_.size();
    } else if (file_columns_ < columns_.size()) {
      widen_file();
    }
    for (const Row& row : rows_) append_row(row);
    rows_.clear();
    row_bytes_ = 0;
  }
  file_.flush(durable);
}

}  // namespace accel::track
