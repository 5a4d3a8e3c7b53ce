// SPDX-License-Identifier: Apache-2.0
#include "track/record.hpp"

#include <chrono>

namespace accel::track {

double present_time() {
  using Microseconds = std::chrono::duration<int64_t, std::micro>;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<Microseconds>(now).count()) / 1e6;
}

void Record::clear() {
  kind = Kind::kValues;
  step = kNoStep;
  time = 0;
  destination = -1;
  name.clear();
  path.clear();
  document = {};
  pictures.clear();
  wants_histograms = true;
  text_.clear();
  entries_.clear();
  histograms_.clear();
  bytes_ = sizeof(Entry);
}

Record::Entry& Record::add(ValueKind kind, std::string_view name) {
  Entry entry{};
  entry.kind = kind;
  entry.name_size = static_cast<uint32_t>(name.size());
  entry.name_begin = text_.size();
  text_.append(name);
  return entries_.emplace_back(entry);
}

void Record::add_text(std::string_view name, std::string_view text) {
  add(ValueKind::kText, name).text_size = text.size();
  text_.append(text);
}

void Record::add_histogram(std::string_view name, Histogram histogram) {
  add(ValueKind::kHistogram, name).histogram = histograms_.size();
  count_bytes(histogram.counts.size() * (sizeof(double) + sizeof(int64_t)));
  histograms_.push_back(std::move(histogram));
}

Record::Value Record::value(size_t index) const {
  const Entry& entry = entries_[index];
  const std::string_view all = text_;
  Value value{entry.kind, all.substr(entry.name_begin, entry.name_size), 0, 0, {}, nullptr};
  switch (entry.kind) {
    case ValueKind::kNumber:
      value.number = entry.number;
      break;
    case ValueKind::kInteger:
      value.integer = entry.integer;
      value.number = static_cast<double>(entry.integer);
      break;
    case ValueKind::kText:
      value.text = all.substr(entry.name_begin + entry.name_size, entry.text_size);
      break;
    case ValueKind::kHistogram:
      value.histogram = &histograms_[entry.histogram];
      break;
  }
  return value;
}

}  // namespace accel::track
