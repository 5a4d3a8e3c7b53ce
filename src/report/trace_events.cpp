// SPDX-License-Identifier: Apache-2.0
#include "report/trace_events.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "json/json.hpp"
#include "os/regular_file.hpp"
#include "os/system_error.hpp"
#include "report/json_elements.hpp"
#include "report/short_text.hpp"

namespace accel::report {
namespace {

constexpr size_t kChunkOfTrace = 1 << 20;
constexpr size_t kMostNamesOfEvents = 100000, kMostLanes = 20000, kLongestNameOfEvent = 300;

struct Category {
  const char* name;
  const char* kind;  // null: our spans say it themselves
};
constexpr Category kCategories[] = {
    {"accel", nullptr},      {"cpu_op", kOperatorKind},   {"user_annotation", kAnnotationKind},
    {"kernel", kDeviceKind}, {"gpu_memcpy", kDeviceKind}, {"gpu_memset", kDeviceKind},
};

std::string id_of(const Json* value) {
  if (value == nullptr) return "";
  return value->text() != nullptr ? *value->text() : print_json(*value);
}

class TraceReader {
 public:
  TraceReader(int64_t rank, std::string file, Problems& problems)
      : rank_(rank), file_(std::move(file)), problems_(problems) {}

  void take(std::string_view name, std::string_view element) {
    if (!name.empty()) return take_member(name, element);
    ++result_.num_events;
    if (element.empty()) return problems_.add(file_, "events that are too long", text("event ", result_.num_events));
    try {
      take_event(parse_json(element, text("event ", result_.num_events)));
    } catch (const Error& error) {
      problems_.add(file_, "damaged events", error.message());
    }
  }

  TraceEvents finish() {
    for (const auto& [place, lane] : lanes_) {
      const auto& [process, thread] = place;
      const auto named = thread_names_.find(place);
      result_.lanes[lane].name = named != thread_names_.end() ? named->second : "thread " + thread;
      if (rank_ < 0) result_.lanes[lane].rank = rank_of(process);
    }
    return std::move(result_);
  }

 private:
  void take_member(std::string_view name, std::string_view element) {
    double value = 0;
    const auto parsed = number_from_chars(element.data(), element.data() + element.size(), value);
    if (name == "baseTimeNanoseconds" && parsed.ec == std::errc() && std::isfinite(value)) result_.base = value / 1e3;
  }

  void take_event(const Json& event) {
    const std::string phase = json_text(event, "ph", "");
    if (phase == "M") return take_metadata(event);
    if (phase != "X") return;
    const std::string category = json_text(event, "cat", "");
    const auto* const found = std::find_if(std::begin(kCategories), std::end(kCategories),
                                           [&category](const Category& one) { return category == one.name; });
    if (found == std::end(kCategories)) return;
    if (result_.events.size() == kMostTraceEvents)
      return problems_.add(file_, "events that are not shown", text("only the first ", kMostTraceEvents, " are"));
    const double begin = json_number(event, "ts", 0), length = json_number(event, "dur", 0);
    require(length >= 0, Status::kCorrupt, "event ", result_.num_events, " takes ", length, " us");
    const Json* const arguments = json_member(event, "args");
    const Json none;
    const Json& given = arguments != nullptr ? *arguments : none;
    const bool is_ours = found->kind == nullptr;
    result_.events.push_back({begin, length, is_ours ? json_number(given, "bytes", 0) : 0,
                              number_of(json_text(event, "name", "")),
                              number_of(is_ours ? json_text(given, "kind", "other") : found->kind),
                              lane_of(id_of(json_member(event, "pid")), id_of(json_member(event, "tid"))), is_ours});
  }

  void take_metadata(const Json& event) {
    const Json* const arguments = json_member(event, "args");
    if (arguments == nullptr) return;
    const std::string kind = json_text(event, "name", ""), process = id_of(json_member(event, "pid"));
    if (kind != "process_name" && kind != "thread_name") return;
    const std::string name = short_text(json_text(*arguments, "name", ""), kLongestNameOfEvent);
    if (thread_names_.size() > kMostLanes || process_names_.size() > kMostLanes) return;
    if (kind == "process_name")
      process_names_[process] = name;
    else
      thread_names_[{process, id_of(json_member(event, "tid"))}] = name;
  }

  // "rank 3 (host)", else the number of the process.
  int64_t rank_of(const std::string& process) const {
    const auto named = process_names_.find(process);
    const std::string name = named != process_names_.end() ? named->second : "";
    for (std::string_view from : {std::string_view(name), std::string_view(process)}) {
      if (from.substr(0, 5) == "rank ") from.remove_prefix(5);
      int64_t rank = 0;
      if (std::from_chars(from.data(), from.data() + from.size(), rank).ec == std::errc()) return rank;
    }
    return 0;
  }

  uint32_t number_of(std::string name) {
    name = short_text(std::move(name), kLongestNameOfEvent);
    if (numbers_.size() >= kMostNamesOfEvents && numbers_.count(name) == 0) name = "(other names)";
    const auto [found, is_new] = numbers_.try_emplace(name, static_cast<uint32_t>(numbers_.size()));
    if (is_new) result_.names.push_back(name);
    return found->second;
  }

  uint32_t lane_of(std::string process, std::string thread) {
    if (lanes_.size() >= kMostLanes) process = thread = "(others)";
    const auto [found, is_new] =
        lanes_.try_emplace({std::move(process), std::move(thread)}, static_cast<uint32_t>(lanes_.size()));
    if (is_new) result_.lanes.push_back({std::max<int64_t>(rank_, 0), ""});
    return found->second;
  }

  const int64_t rank_;
  const std::string file_;
  Problems& problems_;
  TraceEvents result_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::map<std::pair<std::string, std::string>, uint32_t> lanes_;  // process and thread
  std::map<std::pair<std::string, std::string>, std::string> thread_names_;
  std::map<std::string, std::string> process_names_;
};

}  // namespace

TraceEvents read_trace(const std::string& path, int64_t rank, const std::string& file, Problems& problems) {
  const RegularFile opened(path);
  TraceReader reader(rank, file, problems);
  JsonElements elements("traceEvents");
  const auto take = [&reader](std::string_view name, std::string_view element) { reader.take(name, element); };
  std::string chunk(kChunkOfTrace, '\0');
  off_t offset = 0;
  while (true) {
    const ssize_t got = ::pread(opened.descriptor(), chunk.data(), chunk.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_system(Status::kIo, "read", path);
    if (got == 0) break;
    offset += got;
    try {
      elements.feed(std::string_view(chunk).substr(0, static_cast<size_t>(got)), take);
    } catch (const Error& error) {
      problems.add(file, "damaged traces", error.message());
      return reader.finish();
    }
  }
  if (!elements.is_complete()) problems.add(file, "cut-off traces", text("the file ends within it, at byte ", offset));
  return reader.finish();
}

}  // namespace accel::report
