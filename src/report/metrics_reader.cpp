// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_reader.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "report/short_text.hpp"

namespace accel::report {
namespace {

// Limits of what a page can show and memory should hold; series keep fewer points instead.
constexpr size_t kMostSeries = 20000, kMostHistograms = 100, kMostPictures = 8, kMostNames = 1000, kMostNotes = 500;
constexpr size_t kMostArtifacts = 1000, kMostRows = 200, kMostColumns = 50, kMostBins = 512;
constexpr size_t kMostSettings = 5000, kMostBytesOfText = 1000;
constexpr int kDeepestValue = 16;
constexpr int64_t kMostRanks = 4096;
constexpr size_t kFewestPointsOfSeries = 256;

std::string shortened(std::string words) { return short_text(std::move(words), kMostBytesOfText); }

double infinite_of(const std::string& digits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const size_t exponent = digits.find_first_of("eE");
  if (exponent != std::string::npos && digits[exponent + 1] == '-') return 0;  // too small for a double
  return digits.front() == '-' ? -kInfinity : kInfinity;
}

// Also of the texts that stand for what is not finite, and of a number that no double can hold.
std::optional<double> number_of(const Json& value) {
  if (const auto number = value.number()) return number;
  if (value.digits() != nullptr) return infinite_of(*value.digits());
  if (value.flag() != nullptr) return *value.flag() ? 1 : 0;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value.text() == nullptr) return std::nullopt;
  if (*value.text() == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (*value.text() == "Infinity") return kInfinity;
  if (*value.text() == "-Infinity") return -kInfinity;
  return std::nullopt;
}

std::string words_of(const Json& value) {
  if (value.text() != nullptr) return shortened(*value.text());
  if (value.digits() != nullptr) return *value.digits();
  return shortened(print_json(value));
}

double member_number(const Json& object, const char* key, double otherwise) {
  const Json* const value = json_member(object, key);
  if (value == nullptr) return otherwise;
  const auto number = number_of(*value);
  require(number.has_value(), Status::kTypeMismatch, "'", key, "' is ", words_of(*value), "; expected a number");
  return *number;
}

std::string member_name(const Json& object, const char* key) { return shortened(json_text(object, key, "")); }

const Json::Items& member_items(const Json& object, const char* key) {
  const Json* const value = json_member(object, key);
  require(value != nullptr && value->items() != nullptr, Status::kTypeMismatch, "'", key, "' is not a list");
  return *value->items();
}

// Maps become names with '/'; lists stay as they are written.
void flatten(const Json& value, const std::string& name, int depth, Settings& settings) {
  if (settings.size() == kMostSettings) return;
  if (value.members() == nullptr || value.members()->empty() || depth == kDeepestValue) {
    settings.emplace_back(shortened(name), words_of(value));
    return;
  }
  for (const auto& [key, inner] : *value.members())
    flatten(inner, name.empty() ? key : name + "/" + key, depth + 1, settings);
}

Settings flattened(const Json* tree) {
  Settings settings;
  if (tree != nullptr && tree->members() != nullptr && !tree->members()->empty()) flatten(*tree, "", 0, settings);
  return settings;
}

std::vector<double> numbers_of(const Json::Items& items) {
  std::vector<double> numbers;
  for (const Json& item : items) {
    const auto number = number_of(item);
    require(number.has_value(), Status::kTypeMismatch, words_of(item), " stands in a list of numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

// Keeps the newest of each name.
template <typename Item>
void keep_newest(std::vector<Item>& items, Item item, size_t most) {
  const auto has_name = [&item](const Item& other) { return other.name == item.name; };
  if (static_cast<size_t>(std::count_if(items.begin(), items.end(), has_name)) >= most)
    items.erase(std::find_if(items.begin(), items.end(), has_name));
  require(items.size() < most * kMostNames, Status::kUnsupported, "'", item.name, "' is one too many; at most ",
          kMostNames, " of a kind are shown");
  items.push_back(std::move(item));
}

}  // namespace

void MetricsReader::take(const std::string_view* line, int64_t number, uint32_t version) {
  version_ = version;
  const std::string place = text("line ", number);
  if (line == nullptr) return run_.problems.add(kMetricsFile, "lines that are too long", place);
  if (line->find_first_not_of(" \t\r") == std::string_view::npos) return;
  std::optional<Json> parsed;
  try {
    parsed = parse_json(*line, place);
  } catch (const Error& error) {
    run_.version = version;
    return run_.problems.add(kMetricsFile, "damaged lines", error.message());
  }
  try {
    take_object(*parsed);
  } catch (const Error& error) {
    run_.version = version;
    run_.problems.add(kMetricsFile, "lines of another form", text(place, ": ", error.message()));
  }
}

void MetricsReader::take_cut_off(const std::string_view* line, int64_t number, uint32_t version) {
  bool is_whole = line != nullptr;
  try {
    if (is_whole) parse_json(*line, "");
  } catch (const Error&) {
    is_whole = false;
  }
  if (is_whole) return take(line, number, version);
  run_.version = version;
  run_.problems.add(kMetricsFile, "cut-off lines", text("line ", number, ", the last one, does not end"));
}

void MetricsReader::take_object(const Json& line) {
  require(line.members() != nullptr, Status::kTypeMismatch, "this is not an object");
  using Take = void (MetricsReader::*)(const Json& line);
  struct Kind {
    const char* type;
    Take take;
  };
  constexpr Kind kKinds[] = {
      {"values", &MetricsReader::take_values},
      {"step_report", &MetricsReader::take_step_report},
      {"run", &MetricsReader::take_start},
      {"histogram", &MetricsReader::take_histogram},
      {"image", &MetricsReader::take_picture},
      {"figure", &MetricsReader::take_picture},
      {"table", &MetricsReader::take_table},
      {"artifact", &MetricsReader::take_artifact},
      {"config", nullptr},
      {"end", nullptr},
  };
  const std::string type = json_text(line, "type", "");
  const auto* const kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&type](const Kind& one) { return type == one.type; });
  require(kind != std::end(kKinds), Status::kUnsupported, "the type '", shortened(type), "' is not known");
  if (const double time = member_number(line, "time", 0); time > 0 && std::isfinite(time)) {
    if (run_.first_time == 0) run_.first_time = time;
    run_.last_time = std::max(run_.last_time, time);
  }
  if (run_.status.empty()) run_.status = "running";
  if (kind->take != nullptr) return (this->*kind->take)(line);
  run_.version = version_;
  if (type == "config")
    run_.configuration = flattened(json_member(line, "values"));
  else
    run_.status = member_name(line, "status");
}

void MetricsReader::take_start(const Json& line) {
  run_.version = version_;
  run_.starts.push_back({member_number(line, "time", 0), member_name(line, "project"), member_name(line, "run"),
                         member_name(line, "host"), member_name(line, "version"), json_integer(line, "pid", 0),
                         json_integer(line, "world_size", 0), json_flag(line, "resumed", false)});
  if (run_.starts.size() > kMostNames) run_.starts.erase(run_.starts.begin() + 1);
  run_.environment = flattened(json_member(line, "environment"));
  run_.status = "running";
}

void MetricsReader::take_values(const Json& line) {
  const Json* const values = json_member(line, "values");
  require(values != nullptr && values->members() != nullptr, Status::kTypeMismatch, "'values' is not an object");
  take_value("", *values, line, member_number(line, "time", 0), 0);
}

void MetricsReader::take_value(const std::string& name, const Json& value, const Json& line, double time, int depth) {
  if (value.members() != nullptr && depth < kDeepestValue) {
    for (const auto& [key, inner] : *value.members())
      take_value(name.empty() ? key : name + "/" + key, inner, line, time, depth + 1);
    return;
  }
  if (value.is_null()) return;
  const std::optional<double> number = number_of(value);
  if (!number) {
    run_.notes.push_back({shortened(name), member_number(line, "step", 0), words_of(value), version_});
    if (run_.notes.size() > kMostNotes) run_.notes.erase(run_.notes.begin());
    return;
  }
  add_point({kNoRank, shortened(name)}, member_number(line, "step", std::nan("")), time, *number);
}

void MetricsReader::add_point(SeriesName name, double step, double time, double value) {
  auto found = run_.series.find(name);
  if (found == run_.series.end()) {
    require(run_.series.size() < kMostSeries, Status::kUnsupported, "'", name.name, "' is one name too many; at most ",
            kMostSeries, " are shown");
    found = run_.series.try_emplace(std::move(name)).first;
  }
  Series& series = found->second;
  // Values without a step are numbered.
  if (!std::isfinite(step)) step = static_cast<double>(series.num_logged());
  series.add({step, std::isfinite(time) ? time : 0, value, version_});
  if (++num_points_ <= most_points_) return;
  const size_t most = std::max(most_points_ / 2 / run_.series.size(), kFewestPointsOfSeries);
  num_points_ = 0;
  for (auto& [key, one] : run_.series) {
    one.reduce(most);
    num_points_ += one.num_stored();
  }
  // Many short series may need more: it is then proportional to their number, which is bounded.
  most_points_ = std::max(most_points_, 2 * num_points_);
}

void MetricsReader::take_histogram(const Json& line) {
  Histogram histogram{member_name(line, "name"),
                      member_number(line, "step", 0),
                      member_number(line, "min", 0),
                      member_number(line, "max", 0),
                      member_number(line, "count", 0),
                      member_number(line, "sum", 0),
                      numbers_of(member_items(line, "edges")),
                      numbers_of(member_items(line, "counts")),
                      version_};
  const size_t bins = histogram.counts.size();
  require(histogram.edges.size() == bins + 1 && bins > 0 && bins <= kMostBins, Status::kShapeMismatch,
          "the histogram has ", histogram.edges.size(), " edges and ", bins,
          " counts; expected one edge more, and 1 to ", kMostBins, " counts");
  keep_newest(run_.histograms, std::move(histogram), kMostHistograms);
}

void MetricsReader::take_picture(const Json& line) {
  keep_newest(run_.pictures,
              {member_name(line, "name"), member_number(line, "step", 0), json_text(line, "file", ""), version_},
              kMostPictures);
}

void MetricsReader::take_table(const Json& line) {
  Table table{member_name(line, "name"), member_number(line, "step", 0), {}, {}, 0, version_};
  for (const Json& column : member_items(line, "columns"))
    if (table.columns.size() < kMostColumns) table.columns.push_back(words_of(column));
  const Json::Items& rows = member_items(line, "rows");
  table.num_rows = static_cast<int64_t>(rows.size());
  for (size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) {
    require(rows[i].items() != nullptr, Status::kTypeMismatch, "row ", i, " of the table is not a list");
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const Json& cell : *rows[i].items())
      if (row.size() < kMostColumns) row.push_back(words_of(cell));
  }
  keep_newest(run_.tables, std::move(table), 1);
}

void MetricsReader::take_artifact(const Json& line) {
  run_.artifacts.push_back({member_name(line, "name"), member_name(line, "file"), version_});
  if (run_.artifacts.size() > kMostArtifacts) run_.artifacts.erase(run_.artifacts.begin());
}

// Each number of a rank becomes a series of its own: "seconds/data", "memory/resident", "tokens_per_second".
void MetricsReader::take_step_report(const Json& line) {
  const double step = member_number(line, "step", std::nan("")), time = member_number(line, "time", 0);
  for (const Json& report : member_items(line, "ranks")) {
    const int64_t rank = json_integer(report, "rank", kNoRank);
    require(rank >= 0 && rank < kMostRanks, Status::kInvalidArgument, "the rank is ", rank, "; expected 0 to ",
            kMostRanks - 1);
    if (std::string host = member_name(report, "host"); !host.empty() && run_.hosts[rank] != host) {
      run_.hosts[rank] = std::move(host);
      run_.version = version_;
    }
    for (const auto& [name, value] : *report.members()) {
      if (name == "rank" || name == "host") continue;
      const Json::Members one{{"", value}};
      for (const auto& [key, inner] : value.members() != nullptr ? *value.members() : one)
        if (const auto number = number_of(inner))
          add_point({rank, key.empty() ? name : shortened(name + "/" + key)}, step, time, *number);
    }
  }
  const Json* const slowest = json_member(line, "slowest_rank");
  const int64_t rank = slowest == nullptr ? kNoRank : slowest->integer().value_or(kNoRank);
  if (rank < 0 || rank >= kMostRanks) return;
  ++run_.num_slowest[rank];
}

}  // namespace accel::report
