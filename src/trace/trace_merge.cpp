// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_merge.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "json/json.hpp"
#include "os/bus_error_guard.hpp"
#include "os/list_folder.hpp"
#include "os/mapped_file.hpp"
#include "os/replaced_file.hpp"
#include "trace/trace_text.hpp"

namespace accel::track {
namespace {

constexpr int64_t kDevicePids = 1'000'000;  // what runs on a device is a process of its own behind those of the ranks
constexpr size_t kMostArrows = 1'000'000;

struct TraceOfRank {
  explicit TraceOfRank(const std::string& path) : file(path), trace(file.text(), path) {}

  const MappedFile file;
  const TraceText trace;
  int64_t rank = 0;
  std::string host, process;
  int64_t base = 0;    // nanoseconds since 1970 on rank 0's clock
  std::string header;  // what the rank says of itself
};

// "profile_12.json": 12.
std::optional<int64_t> rank_in_name(const std::string& path) {
  constexpr std::string_view kPrefix = "profile_", kSuffix = ".json";
  const std::string name = std::filesystem::path(path).filename().string();
  if (name.size() <= kPrefix.size() + kSuffix.size() || !starts_with(name, kPrefix) || !ends_with(name, kSuffix))
    return std::nullopt;
  const std::string digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  if (!std::all_of(digits.begin(), digits.end(), [](char digit) { return digit >= '0' && digit <= '9'; }))
    return std::nullopt;
  return parse_integer(digits);
}

std::string_view value_of(const std::vector<TraceMember>& members, std::string_view name) {
  for (const auto& [key, value] : members)
    if (key == name) return value;
  return {};
}

// The process of the rank is that of the first event that names one by its number.
std::string first_process(const TraceText& trace) {
  std::string process;
  trace.for_each_event([&](std::string_view event) {
    process = value_of(trace.members(event), "pid");
    return process.empty() || process[0] == '"';
  });
  return process;
}

std::unique_ptr<TraceOfRank> read_trace(const std::string& path, size_t place) {
  auto trace = std::make_unique<TraceOfRank>(path);
  const Json ours = trace->trace.member("accel"), base = trace->trace.member("baseTimeNanoseconds");
  try {
    const bool is_ours = ours.members() != nullptr;
    const Json header = is_ours ? ours : Json(Json::Members());
    const Json* const clock = json_member(header, "clock");
    trace->rank = json_integer(header, "rank", rank_in_name(path).value_or(static_cast<int64_t>(place)));
    trace->host = json_text(header, "host", "");
    trace->base = base.integer().value_or(0);
    constexpr int64_t kMostOffset = int64_t{1} << 61;
    const int64_t offset = clock != nullptr ? json_integer(*clock, "offset_ns", 0) : 0;
    if (offset < -kMostOffset || offset > kMostOffset || trace->base < -kMostOffset || trace->base > kMostOffset)
      trace->trace.refuse("its clock is out of range");
    trace->base += offset;
    const int64_t process = json_integer(header, "pid", -1);
    trace->process = process >= 0 ? std::to_string(process) : first_process(trace->trace);
    if (is_ours) trace->header = trace->trace.member_text("accel");
  } catch (const Error& error) {
    if (error.status() == Status::kCorrupt) throw;
    trace->trace.refuse(error.message());
  }
  forget_pages(trace->file.data(), trace->file.size());
  if (trace->rank < 0 || trace->rank >= kDevicePids) trace->trace.refuse(text("its rank is ", trace->rank));
  return trace;
}

// One rank's part of a collective.
struct Part {
  int64_t begun;  // in the merged trace
  int64_t rank;
  std::string track;
};
using Calls = std::map<std::pair<std::string, int64_t>, std::vector<Part>>;  // by group and number

class Merger {
 public:
  Merger(const std::string& path, const TraceOfRank& first) : output_(path), base_(first.base) {}

  void begin(const std::vector<std::unique_ptr<TraceOfRank>>& traces) {
    output_.write(text(R"({"schemaVersion":1,"displayTimeUnit":"ms","baseTimeNanoseconds":)", base_,
                       R"(,"accel":{"merged":true,"ranks":[)"));
    bool is_first = true;
    for (const auto& trace : traces) {
      if (trace->header.empty()) continue;
      output_.write(is_first ? "\n" : ",\n");
      output_.write(trace->header);
      is_first = false;
    }
    output_.write("]},\n\"traceEvents\":[");
  }

  void add(const TraceOfRank& trace) {
    const std::string host = trace.host.empty() ? "" : " (" + trace.host + ")";
    name_process(trace.rank, text("rank ", trace.rank, host), trace.rank);
    size_t read = 0;
    trace.trace.for_each_event([&](std::string_view event) {
      add_event(trace, event);
      // Memory of pages that have been read is given back, so that long traces do not fill it.
      constexpr size_t kForgotten = size_t{16} << 20;
      const auto at = static_cast<size_t>(event.data() - trace.file.data());
      if (at >= read + kForgotten) {
        forget_pages(trace.file.data() + read, at - read);
        read = at;
      }
      return true;
    });
    for (const std::string& device : devices_)
      name_process(device_process(trace, device), text("rank ", trace.rank, host, " device ", device),
                   device_process(trace, device));
    devices_.clear();
  }

  void end() {
    int64_t arrow = 0;
    for (auto& [call, parts] : calls_) {
      if (parts.size() < 2) continue;
      std::sort(parts.begin(), parts.end(), [](const Part& one, const Part& other) {
        return std::make_pair(one.begun, one.rank) < std::make_pair(other.begun, other.rank);
      });
      arrow++;
      for (size_t i = 0; i < parts.size(); i++) {
        const char* const kind = i == 0 ? "s" : i + 1 < parts.size() ? "t" : "f";
        write_event(text(R"({"ph":")", kind, R"(","bp":"e","cat":"accel","name":"collective","id":)", arrow,
                         R"(,"pid":)", parts[i].rank, R"(,"tid":)", parts[i].track, R"(,"ts":)",
                         trace_microseconds(parts[i].begun), "}"));
      }
    }
    output_.write("\n]}\n");
    output_.commit();
  }

 private:
  static int64_t device_process(const TraceOfRank& trace, const std::string& device) {
    const int64_t number = parse_integer(device).value_or(0);
    return trace.rank + kDevicePids * (1 + std::min<int64_t>(std::max<int64_t>(number, 0), 1000));
  }

  // The ranks number their arrows alike.
  static std::string arrow_of_rank(const TraceOfRank& trace, std::string_view id) {
    const std::optional<int64_t> number = parse_integer(std::string(id));
    constexpr int64_t kOfARank = int64_t{1} << 32;
    if (!number || *number < 0 || *number >= kOfARank) return std::string(id);
    return std::to_string(trace.rank * kOfARank + *number);
  }

  void write_event(std::string_view event) {
    output_.write(is_first_ ? "\n" : ",\n");
    output_.write(event);
    is_first_ = false;
  }

  void name_process(int64_t process, const std::string& name, int64_t place) {
    const std::string of = text(R"(,"ts":0,"pid":)", process, R"(,"tid":0,"args":{)");
    write_event(text(R"({"ph":"M","name":"process_name")", of, R"("name":)", print_json(Json(name)), "}}"));
    write_event(text(R"({"ph":"M","name":"process_sort_index")", of, R"("sort_index":)", place, "}}"));
  }

  void add_event(const TraceOfRank& trace, std::string_view event) {
    const std::vector<TraceMember> members = trace.trace.members(event);
    const std::string_view process = value_of(members, "pid"), phase = value_of(members, "ph");
    const bool is_of_device = !process.empty() && process[0] != '"' && process != trace.process;
    // The processes have their own names here.
    if (phase == R"("M")" && value_of(members, "name").substr(0, 9) == R"("process_)") return;
    if (is_of_device) devices_.insert(std::string(process));
    const int64_t shown_process = is_of_device ? device_process(trace, std::string(process)) : trace.rank;
    std::string line = "{";
    int64_t time = 0;
    for (const auto& [key, value] : members) {
      if (line.size() > 1) line += ',';
      line.append("\"").append(key).append("\":");
      if (key == "pid") {
        line += std::to_string(shown_process);
      } else if (key == "ts" && !value.empty() && value[0] != '"') {
        // Sums of times that are out of range are meaningless, and not undefined.
        time = static_cast<int64_t>(static_cast<uint64_t>(trace_nanoseconds(value)) +
                                    (static_cast<uint64_t>(trace.base) - static_cast<uint64_t>(base_)));
        line += phase == R"("M")" ? std::string(value) : trace_microseconds(time);
      } else if (key == "id" && (phase == R"("s")" || phase == R"("t")" || phase == R"("f")")) {
        line += arrow_of_rank(trace, value);
      } else {
        line += value;
      }
    }
    write_event(line += '}');
    if (value_of(members, "cat") == R"("accel")") note_collective(trace, members, time);
  }

  void note_collective(const TraceOfRank& trace, const std::vector<TraceMember>& members, int64_t time) {
    const std::string_view text_of_arguments = value_of(members, "args");
    if (text_of_arguments.substr(0, 1) != "{" || num_parts_ >= kMostArrows) return;
    const Json arguments = parse_json(text_of_arguments, trace.trace.file());
    const Json* const kind = json_member(arguments, "kind");
    const Json* const group = json_member(arguments, "group");
    const Json* const sequence = json_member(arguments, "sequence");
    if (kind == nullptr || kind->text() == nullptr || *kind->text() != "collective") return;
    if (group == nullptr || group->text() == nullptr || sequence == nullptr || !sequence->integer()) return;
    const std::string_view name = value_of(members, "name"), track = value_of(members, "tid");
    if (track.empty() || name == R"("send")" || name == R"("receive")") return;  // numbered by each rank for itself
    calls_[{*group->text(), *sequence->integer()}].push_back({time, trace.rank, std::string(track)});
    num_parts_++;
  }

  ReplacedFile output_;
  const int64_t base_;
  bool is_first_ = true;
  std::set<std::string> devices_;
  Calls calls_;
  size_t num_parts_ = 0;
};

}  // namespace

std::vector<std::string> traces_in(const std::string& folder) {
  std::map<int64_t, std::string> by_rank;
  for (const std::string& name : list_folder(folder))
    if (const auto rank = rank_in_name(name)) by_rank[*rank] = (std::filesystem::path(folder) / name).string();
  std::vector<std::string> paths;
  for (const auto& [rank, path] : by_rank) paths.push_back(path);
  require(!paths.empty(), Status::kNotFound, "'", folder, "' has no trace; expected files profile_<rank>.json");
  return paths;
}

void merge_traces(const std::vector<std::string>& paths, const std::string& merged) {
  require(!paths.empty(), Status::kInvalidArgument, "there are no traces; expected files, or a folder");
  if (paths.size() == 1 && is_folder(paths[0])) return merge_traces(traces_in(paths[0]), merged);
  const BusErrorGuard lost_pages;
  std::vector<std::unique_ptr<TraceOfRank>> traces;
  for (const std::string& path : paths) traces.push_back(read_trace(path, traces.size()));
  std::sort(traces.begin(), traces.end(), [](const auto& one, const auto& other) { return one->rank < other->rank; });
  for (size_t i = 1; i < traces.size(); i++)
    if (traces[i]->rank == traces[i - 1]->rank)
      traces[i]->trace.refuse(text("it is of rank ", traces[i]->rank, ", as '", traces[i - 1]->trace.file(),
                                   "'; expected one trace of each rank"));
  Merger merger(merged, *traces[0]);
  merger.begin(traces);
  for (const auto& trace : traces) merger.add(*trace);
  merger.end();
}

}  // namespace accel::track
