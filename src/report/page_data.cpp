// SPDX-License-Identifier: Apache-2.0
#include "report/page_data.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "json/json_writer.hpp"
#include "report/embedded_picture.hpp"

namespace accel::report {
namespace {

constexpr size_t kMostBytesOfPicture = 4 << 20, kMostBytesOfPictures = 16 << 20;

// Steps are the first one and runs of equal distances: 0, 10, 20, 40 is [0, 10, 2, 20, 1].
void write_steps(JsonWriter& out, const std::vector<Point>& points) {
  out.begin_list();
  out.number(points.front().step);
  for (size_t i = 1; i < points.size();) {
    const double distance = points[i].step - points[i - 1].step;
    size_t end = i + 1;
    while (end < points.size() && points[end].step - points[end - 1].step == distance) ++end;
    out.number(distance);
    out.integer(static_cast<int64_t>(end - i));
    i = end;
  }
  out.end_list();
}

// Milliseconds: the first, then the distances.
void write_times(JsonWriter& out, const std::vector<Point>& points) {
  out.begin_list();
  double before = 0;
  for (const Point& point : points) {
    const double now = std::round(point.time * 1e3);
    out.number(now - before);
    before = now;
  }
  out.end_list();
}

std::string axis_of(const std::vector<Point>& points) {
  std::string axis;
  JsonWriter out(axis, JsonEscapes::kHtml);
  out.begin_list();
  write_steps(out, points);
  write_times(out, points);
  out.end_list();
  return axis;
}

class PageData {
 public:
  PageData(const std::vector<const Run*>& runs, uint32_t version, uint32_t since)
      : runs_(runs), version_(version), since_(since) {}

  std::string write() {
    find_share();
    out_.begin_object();
    out_.name("version");
    out_.integer(version_);
    out_.name("time");
    out_.number(std::floor(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()));
    out_.name("num_points");
    out_.integer(static_cast<int64_t>(num_points_));
    out_.list("runs", runs_, [this](const Run* run) { write_run(*run); });
    out_.end_object();
    return std::move(document_);
  }

 private:
  bool is_new(uint32_t version) const { return version > since_; }

  // All of a series that the page does not have yet.
  std::vector<Point> new_points(const Series& series) const {
    if (since_ == 0) return series.points();
    if (!is_new(series.latest().version)) return {};
    std::vector<Point> points;
    std::copy_if(series.points().begin(), series.points().end(), std::back_inserter(points),
                 [this](const Point& point) { return is_new(point.version); });
    return points;
  }

  void find_share() {
    std::vector<size_t> sizes;
    for (const Run* const run : runs_)
      for (const auto& [name, series] : run->series) {
        sizes.push_back(new_points(series).size());
        num_points_ += series.num_logged();
      }
    share_ = share_of_points(sizes, kMostPointsOfPage);
  }

  void write_run(const Run& run) {
    out_.begin_object();
    write_text("name", run.name);
    out_.name("id");
    out_.integer(run.id);
    write_text("status", run.status);
    write_exact("first_time", run.first_time);
    write_exact("last_time", run.last_time);
    out_.object("slowest", [this, &run] {
      for (const auto& [rank, count] : run.num_slowest) {
        out_.name(std::to_string(rank));
        out_.integer(count);
      }
    });
    if (is_new(run.version)) write_facts(run);
    write_series(run);
    write_histograms(run);
    write_pictures(run);
    write_tables(run);
    write_new("notes", run.notes, [this](const Note& note) {
      write_named(note);
      write_text("text", note.words);
    });
    write_new("artifacts", run.artifacts, [this](const Artifact& artifact) {
      write_text("name", artifact.name);
      write_text("file", artifact.file);
    });
    if (is_new(run.trace_version) && !run.trace.files.empty()) write_trace(run.trace);
    out_.end_object();
  }

  void write_text(const char* name, const std::string& words) {
    out_.name(name);
    out_.text(words);
  }

  void write_number(const char* name, double number) {
    out_.name(name);
    out_.short_number(number);
  }

  void write_exact(const char* name, double number) {
    out_.name(name);
    out_.number(number);
  }

  void write_settings(const char* name, const Settings& settings) {
    out_.list(name, settings, [this](const auto& setting) {
      out_.begin_list();
      out_.text(setting.first);
      out_.text(setting.second);
      out_.end_list();
    });
  }

  template <typename Numbers>
  void write_numbers(const char* name, const Numbers& numbers) {
    out_.list(name, numbers, [this](double number) { out_.short_number(number); });
  }

  // Objects of those items that are new.
  template <typename Item, typename Write>
  void write_new(const char* name, const std::vector<Item>& items, const Write& write) {
    if (std::none_of(items.begin(), items.end(), [this](const Item& item) { return is_new(item.version); })) return;
    out_.list(name, items, [this, &write](const Item& item) {
      if (!is_new(item.version)) return;
      out_.begin_object();
      write(item);
      out_.end_object();
    });
  }

  template <typename Item>
  void write_named(const Item& item) {
    write_text("name", item.name);
    write_exact("step", item.step);
  }

  // Facts are sent whole when any of them has changed.
  void write_facts(const Run& run) {
    out_.object("facts", [this, &run] {
      write_text("folder", run.folder);
      out_.list("starts", run.starts, [this](const Start& start) {
        out_.begin_object();
        write_exact("time", start.time);
        write_text("project", start.project);
        write_text("run", start.run);
        write_text("host", start.host);
        write_text("version", start.version);
        out_.name("pid");
        out_.integer(start.pid);
        out_.name("world_size");
        out_.integer(start.world_size);
        out_.name("resumed");
        out_.flag(start.is_resumed);
        out_.end_object();
      });
      write_settings("configuration", run.configuration);
      write_settings("environment", run.environment);
      out_.object("hosts", [this, &run] {
        for (const auto& [rank, host] : run.hosts) write_text(std::to_string(rank).c_str(), host);
      });
      out_.name("problems");
      out_.begin_list();
      for (const Problems* const problems : {&run.problems, &run.trace_problems})
        for (const Problem& problem : problems->all()) out_.text(words_of(problem));
      out_.end_list();
    });
  }

  // Series that are logged together have the same steps and times: an axis, which is written once.
  void write_series(const Run& run) {
    std::map<std::string, size_t> axes;
    std::string all_series, all_axes;
    JsonWriter series_writer(all_series, JsonEscapes::kHtml), axis_writer(all_axes, JsonEscapes::kHtml);
    axis_writer.begin_list();
    series_writer.begin_list();
    for (const auto& [name, series] : run.series) {
      const std::vector<Point> points = reduced(new_points(series), share_);
      if (points.empty()) continue;
      const auto [axis, is_new_axis] = axes.try_emplace(axis_of(points), axes.size());
      if (is_new_axis) axis_writer.written(axis->first);
      write_one_series(series_writer, name, series, points, axis->second);
    }
    axis_writer.end_list();
    series_writer.end_list();
    if (axes.empty()) return;
    out_.name("axes");
    out_.written(all_axes);
    out_.name("series");
    out_.written(all_series);
  }

  void write_one_series(JsonWriter& out, const SeriesName& name, const Series& series, const std::vector<Point>& points,
                        size_t axis) {
    const Statistics& statistics = series.statistics();
    out.begin_object();
    out.name("name");
    out.text(name.name);
    if (name.rank != kNoRank) {
      out.name("rank");
      out.integer(name.rank);
    }
    out.name("axis");
    out.integer(static_cast<int64_t>(axis));
    out.name("count");
    out.integer(static_cast<int64_t>(series.num_logged()));
    out.name("reduced");
    out.flag(series.is_reduced() || (since_ == 0 && points.size() < series.points().size()));
    if (statistics.count > 0) {
      out.name("mean");
      out.short_number(statistics.sum / static_cast<double>(statistics.count));
      out.name("least");
      out.short_number(statistics.least);
      out.name("greatest");
      out.short_number(statistics.greatest);
    }
    out.name("latest");
    out.short_number(series.latest().value);
    out.list("y", points, [&out](const Point& point) { out.short_number(point.value); });
    out.end_object();
  }

  void write_histograms(const Run& run) {
    write_new("histograms", run.histograms, [this](const Histogram& histogram) {
      write_named(histogram);
      write_number("least", histogram.least);
      write_number("greatest", histogram.greatest);
      write_number("count", histogram.count);
      write_number("sum", histogram.sum);
      write_numbers("edges", histogram.edges);
      write_numbers("counts", histogram.counts);
    });
  }

  // The newest ones first get the bytes that a page may have.
  void write_pictures(const Run& run) {
    std::vector<std::pair<bool, std::string>> shown(run.pictures.size());
    for (size_t i = run.pictures.size(); i-- > 0;) {
      if (!is_new(run.pictures[i].version)) continue;
      const size_t left = kMostBytesOfPictures - std::min(kMostBytesOfPictures, picture_bytes_);
      try {
        shown[i] = {true, embedded_picture(run.folder, run.pictures[i].file, std::min(left, kMostBytesOfPicture))};
      } catch (const Error& error) {
        shown[i] = {false, error.message()};
      }
      picture_bytes_ += shown[i].second.size();
    }
    write_new("pictures", run.pictures, [this, &shown, &run](const Picture& picture) {
      const auto i = static_cast<size_t>(&picture - run.pictures.data());
      write_named(picture);
      write_text(shown[i].first ? "data" : "reason", shown[i].second);
    });
  }

  void write_tables(const Run& run) {
    const auto write_texts = [this](const std::vector<std::string>& cells) {
      out_.begin_list();
      for (const std::string& cell : cells) out_.text(cell);
      out_.end_list();
    };
    write_new("tables", run.tables, [this, &write_texts](const Table& table) {
      write_named(table);
      out_.name("num_rows");
      out_.integer(table.num_rows);
      out_.name("columns");
      write_texts(table.columns);
      out_.list("rows", table.rows, write_texts);
    });
  }

  void write_trace(const TraceSummary& trace) {
    out_.object("trace", [this, &trace] {
      out_.list("files", trace.files, [this](const std::string& file) { out_.text(file); });
      out_.name("num_events");
      out_.integer(trace.num_events);
      out_.list("spans", trace.spans, [this](const SpanTime& time) {
        out_.begin_object();
        out_.name("rank");
        out_.integer(time.rank);
        write_text("kind", time.kind);
        out_.name("count");
        out_.integer(time.count);
        write_number("seconds", time.seconds);
        write_number("bytes", time.bytes);
        out_.end_object();
      });
      out_.list("operators", trace.operators, [this](const OperatorTime& time) {
        out_.begin_object();
        write_text("name", time.name);
        out_.name("device");
        out_.flag(time.is_on_device);
        out_.name("count");
        out_.integer(time.count);
        write_number("seconds", time.seconds);
        write_number("self", time.self_seconds);
        out_.end_object();
      });
      // Lists instead of objects: there are thousands.
      out_.list("timeline", trace.timeline, [this](const TimelineSpan& span) {
        out_.begin_list();
        out_.integer(span.rank);
        out_.text(span.lane);
        out_.text(span.name);
        out_.text(span.kind);
        out_.number(std::round(span.begin * 1e7) / 1e7);
        out_.short_number(span.seconds);
        out_.integer(span.depth);
        out_.short_number(span.bytes);
        out_.end_list();
      });
    });
  }

  const std::vector<const Run*>& runs_;
  const uint32_t version_, since_;
  size_t share_ = 0;
  size_t num_points_ = 0;
  size_t picture_bytes_ = 0;
  std::string document_;
  JsonWriter out_{document_, JsonEscapes::kHtml};
};

}  // namespace

std::string page_data(const std::vector<const Run*>& runs, uint32_t version, uint32_t since) {
  return PageData(runs, version, since).write();
}

std::string page_data(const Report& report, uint32_t since) {
  return page_data(report.runs(), report.version(), since);
}

}  // namespace accel::report
