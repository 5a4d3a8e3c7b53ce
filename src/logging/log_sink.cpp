// SPDX-License-Identifier: Apache-2.0
#include "logging/log_sink.hpp"

#include <fcntl.h>
#include <sys/time.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/name_list.hpp"
#include "base/text_check.hpp"
#include "base/utc_time.hpp"
#include "base/write_whole.hpp"
#include "json/json.hpp"
#include "logging/terminal.hpp"
#include "os/file_descriptor.hpp"
#include "os/system_error.hpp"

namespace accel::track {
namespace {

constexpr char kEngineName[] = "accel";

struct LevelName {
  const char* name;
  int32_t level;
};
// The names of levels are those of Python's logging. The first of equal ones is written.
constexpr LevelName kLevels[] = {{"CRITICAL", 50}, {"FATAL", 50}, {"ERROR", 40}, {"WARNING", 30},
                                 {"WARN", 30},     {"INFO", 20},  {"DEBUG", 10}, {"NOTSET", 0}};

std::string indented(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for (const char character : text) {
    result += character;
    if (character == '\n') result += "    ";
  }
  return result;
}

std::string text_line(const LogMessage& message, const timeval& now) {
  return text(utc_time(now), " ", log_level_name(message.level), " [rank ", message.rank, "] ",
              indented(message.logger), ": ", indented(message.text), "\n");
}

std::string json_line(const LogMessage& message, const timeval& now) {
  Json::Members members;
  members.emplace_back("time", Json::number(static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_usec) * 1e-6));
  members.emplace_back("level", Json(log_level_name(message.level)));
  members.emplace_back("rank", Json::number(static_cast<int64_t>(message.rank)));
  members.emplace_back("logger", Json(std::string(message.logger)));
  members.emplace_back("message", Json(std::string(message.text)));
  return print_json(Json(std::move(members))) + "\n";
}

class Sink {
 public:
  Sink(const LogSinkSettings& settings, int rank)
      : kind_(settings.kind), level_(static_cast<int32_t>(settings.level)), engine_(settings.engine), rank_(rank) {
    if (kind_ == LogSinkKind::kStderr) return;
    path_ = settings.path;
    require(!path_.empty(), Status::kInvalidArgument, "a sink of kind ",
            kind_ == LogSinkKind::kFile ? "FILE" : "JSON_LINES",
            " has no path; expected a file, with {rank} in its name");
    constexpr std::string_view kRank = "{rank}";
    for (size_t at = path_.find(kRank); at != std::string::npos; at = path_.find(kRank, at))
      path_.replace(at, kRank.size(), std::to_string(rank));
    // A pipe without a reader is an error instead of a wait.
    file_ =
        FileDescriptor(open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
    if (!file_.is_open()) fail_system(Status::kIo, "open", path_);
  }

  bool takes(int32_t level, bool of_engine) const { return level >= level_ && (engine_ || !of_engine); }
  int rank() const { return rank_; }

  void write(const LogMessage& message, const timeval& now) {
    const std::string line = kind_ == LogSinkKind::kJsonLines ? json_line(message, now) : text_line(message, now);
    if (kind_ == LogSinkKind::kStderr) {
      if (!Terminal::of_stderr().print(line)) fail_system(Status::kIo, "write to", "stderr");
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    append(line);
  }

 private:
  // One write() a line: other processes may append to the same file.
  void append(const std::string& line) {
    const std::string whole = is_cut_ ? "\n" + line : line;
    const size_t written = write_whole(file_.number(), whole);
    if (written < whole.size()) {
      is_cut_ = is_cut_ || written > 0;  // the next line must not continue this one
      fail_system(Status::kIo, "write", path_);
    }
    is_cut_ = false;
  }

  const LogSinkKind kind_;
  const int32_t level_;
  const bool engine_;
  const int rank_;
  std::string path_;
  FileDescriptor file_;
  std::mutex mutex_;
  bool is_cut_ = false;
};

struct Sinks {
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<Sink>> sinks;
  int64_t next = 1;
};

// Never destroyed: threads may log while the process exits.
Sinks& sinks() {
  alignas(Sinks) static unsigned char storage[sizeof(Sinks)];
  static Sinks* const instance = ::new (storage) Sinks;
  return *instance;
}

std::vector<std::shared_ptr<Sink>> all_sinks() {
  Sinks& all = sinks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<std::shared_ptr<Sink>> found;
  found.reserve(all.sinks.size());
  for (const auto& [number, sink] : all.sinks) found.push_back(sink);
  return found;
}

// The library's own messages must not fail the call that logs them.
void hear_engine(LogLevel level, const std::string& message) noexcept try {
  const auto number = static_cast<int32_t>(level);
  timeval now{};
  gettimeofday(&now, nullptr);
  const std::string repaired = repaired_text(message);
  for (const auto& sink : all_sinks()) {
    if (!sink->takes(number, true)) continue;
    try {
      sink->write({number, sink->rank(), kEngineName, repaired}, now);
    } catch (const Error&) {  // the next message of a logger says it
    }
  }
} catch (...) {
}

}  // namespace

const char* log_level_name(int32_t level) {
  for (const LevelName& known : kLevels)
    if (level >= known.level) return known.name;
  return "NOTSET";
}

int32_t parse_log_level(const std::string& name, const std::string& source) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char letter) { return std::toupper(letter); });
  std::vector<std::string> names;
  for (const LevelName& known : kLevels) {
    if (upper == known.name) return known.level;
    names.emplace_back(known.name);
  }
  fail(Status::kInvalidArgument, source, " is '", name, "'; expected one of ", list_names(names), ", in any case");
}

int64_t add_log_sink(const LogSinkSettings& settings, int rank) {
  auto sink = std::make_shared<Sink>(settings, rank);
  Sinks& all = sinks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const int64_t number = all.next++;
  all.sinks.emplace(number, std::move(sink));
  set_log_tap(hear_engine);
  return number;
}

bool remove_log_sink(int64_t sink) {
  Sinks& all = sinks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const bool found = all.sinks.erase(sink) == 1;
  if (all.sinks.empty()) set_log_tap(nullptr);
  return found;
}

void write_to_sinks(const LogMessage& message) {
  timeval now{};
  gettimeofday(&now, nullptr);
  std::exception_ptr failure;
  for (const auto& sink : all_sinks()) {
    if (!sink->takes(message.level, false)) continue;
    try {
      sink->write(message, now);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace accel::track
