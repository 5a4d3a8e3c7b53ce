// SPDX-License-Identifier: Apache-2.0
// A record: what one call logs. Names and texts are stored in one text, so that a record that is used again allocates
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json/json.hpp"

namespace accel::track {

// Seconds since 1970.
double present_time();

inline constexpr int64_t kNoStep = std::numeric_limits<int64_t>::min();

// A histogram of the finite elements of a tensor.
struct Histogram {
  double min = 0;
  double max = 0;
  double sum = 0;
  double sum_squares = 0;
  int64_t count = 0;
  std::vector<double> edges;  // one more than counts
  std::vector<int64_t> counts;
};

// Encoded.
struct Picture {
  std::string name;
  std::string bytes;
  std::string format;  // "png", "jpg", "svg" or "html"
  int64_t width = 0;   // 0: not known
  int64_t height = 0;
};

class Record {
 public:
  enum class Kind { kValues, kConfiguration, kImages, kTable, kFigure, kArtifact, kStepReport };
  enum class ValueKind { kNumber, kInteger, kText, kHistogram };
  struct Value {
    ValueKind kind;
    std::string_view name;
    double number;               // also of an integer
    int64_t integer;             // of an integer
    std::string_view text;       // of a text
    const Histogram* histogram;  // of a histogram
  };

  Kind kind = Kind::kValues;
  int64_t step = kNoStep;
  double time = 0;       // seconds since 1970
  int destination = -1;  // the sink that gets it; -1: all
  std::string name;      // of a table, or under which an artifact is stored
  std::string path;      // of an artifact
  Json document;         // a configuration, a step report, or {"columns", "rows"} of a table
  std::vector<Picture> pictures;
  bool wants_histograms = true;  // false where nobody writes them

  void clear();
  void add_number(std::string_view name, double number) { add(ValueKind::kNumber, name).number = number; }
  void add_integer(std::string_view name, int64_t integer) { add(ValueKind::kInteger, name).integer = integer; }
  void add_text(std::string_view name, std::string_view text);
  void add_histogram(std::string_view name, Histogram histogram);

  size_t size() const { return entries_.size(); }
  Value value(size_t index) const;
  // The size of the memory that the content needs.
  size_t bytes() const { return bytes_ + text_.size() + entries_.size() * sizeof(Entry); }
  // For what the memory of texts and values does not include: pictures, documents.
  void count_bytes(size_t bytes) { bytes_ += bytes; }

 private:
  struct Entry {
    ValueKind kind;
    uint32_t name_size;
    size_t name_begin;
    union {
      double number;
      int64_t integer;
      size_t text_size;  // the text follows the name
      size_t histogram;  // its index
    };
  };

  Entry& add(ValueKind kind, std::string_view name);

  std::string text_;
  std::vector<Entry> entries_;
  std::vector<Histogram> histograms_;
  size_t bytes_ = sizeof(Entry);
};

}  // namespace accel::track
