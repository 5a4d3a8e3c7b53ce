// SPDX-License-Identifier: Apache-2.0
#include "track/json_lines.hpp"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <fstream>
#include <utility>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "machine/processors.hpp"
#include "track/run_folder.hpp"

namespace accel::track {
namespace {

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words, word;
  while (std::getline(file, word, '\0')) words += (words.empty() ? "" : " ") + word;
  words.resize(first_bad_byte(words));
  return words;
}

Json environment_of_run() {
  struct utsname system {};
  std::array<char, 4096> folder{};
  Json::Members members = {{"command", Json(command_line())},
                           {"processors", Json::number(int64_t{usable_processors()})}};
  if (::uname(&system) == 0) members.emplace_back("system", Json(text(system.sysname, " ", system.release)));
  if (::getcwd(folder.data(), folder.size()) != nullptr) members.emplace_back("folder", Json(folder.data()));
  return Json(std::move(members));
}

void write_step(JsonWriter& line, int64_t step) {
  line.name("step");
  if (step == kNoStep)
    line.null();
  else
    line.integer(step);
}

void write_text(JsonWriter& line, const char* key, std::string_view value) {
  line.name(key);
  line.text(value);
}

void write_integer(JsonWriter& line, const char* key, int64_t value) {
  line.name(key);
  line.integer(value);
}

void write_number(JsonWriter& line, const char* key, double value) {
  line.name(key);
  line.number(value);
}

// A name that no file in the folder has.
std::string free_path(const std::string& folder, const std::string& name, const std::string& extension) {
  struct stat found {};
  std::string path = folder + "/" + name + extension;
  for (int number = 2; ::lstat(path.c_str(), &found) == 0; number++)
    path = text(folder, "/", name, "_", number, extension);
  return path;
}

}  // namespace

JsonLines::JsonLines(Run run) : run_(std::move(run)), file_(run_.folder + "/metrics.jsonl") {
  file_.remove_broken_line();
  write_run();
}

JsonWriter JsonLines::begin_line(const char* type, double time) {
  JsonWriter line(file_.buffer());
  line.begin_object();
  write_text(line, "type", type);
  write_number(line, "time", time);
  return line;
}

void JsonLines::end_line(JsonWriter& line) {
  line.end_object();
  file_.buffer() += '\n';
}

void JsonLines::write_run() {
  JsonWriter line = begin_line("run", present_time());
  write_text(line, "project", run_.project);
  write_text(line, "run", run_.name);
  write_text(line, "host", run_.host);
  write_integer(line, "pid", ::getpid());
  write_integer(line, "rank", run_.rank);
  write_integer(line, "world_size", run_.world_size);
  write_text(line, "version", run_.version);
  line.name("resumed");
  line.flag(run_.resumed);
  line.name("environment");
  line.value(environment_of_run());
  end_line(line);
}

void JsonLines::write_values(const Record& record) {
  bool has_values = record.size() == 0;  // an empty map is a line, too
  for (size_t i = 0; i < record.size(); i++) has_values |= record.value(i).kind != Record::ValueKind::kHistogram;
  if (has_values) {
    JsonWriter line = begin_line("values", record.time);
    write_step(line, record.step);
    line.object("values", [&] {
      for (size_t i = 0; i < record.size(); i++) {
        const Record::Value value = record.value(i);
        if (value.kind == Record::ValueKind::kHistogram) continue;
        line.name(value.name);
        if (value.kind == Record::ValueKind::kText)
          line.text(value.text);
        else if (value.kind == Record::ValueKind::kInteger)
          line.integer(value.integer);
        else
          line.number(value.number);
      }
    });
    end_line(line);
  }
  for (size_t i = 0; i < record.size(); i++)
    if (record.value(i).kind == Record::ValueKind::kHistogram) write_histogram(record, record.value(i));
}

void JsonLines::write_histogram(const Record& record, const Record::Value& value) {
  JsonWriter line = begin_line("histogram", record.time);
  const Histogram& histogram = *value.histogram;
  write_step(line, record.step);
  write_text(line, "name", value.name);
  write_number(line, "min", histogram.min);
  write_number(line, "max", histogram.max);
  write_integer(line, "count", histogram.count);
  write_number(line, "sum", histogram.sum);
  line.list("edges", histogram.edges, [&](double edge) { line.number(edge); });
  line.list("counts", histogram.counts, [&](int64_t count) { line.integer(count); });
  end_line(line);
}

void JsonLines::write_picture(const char* type, const Record& record, const Picture& picture) {
  const std::string folder = text(type, "s");
  std::string name = file_name_of(picture.name);
  if (record.step != kNoStep) name += text("_", record.step);
  make_folder(run_.folder + "/" + folder);
  const std::string path = free_path(run_.folder + "/" + folder, name, "." + picture.format);
  write_file(path, "");  // the name is taken
  side_files_.push_back({path, picture.bytes, ""});
  JsonWriter line = begin_line(type, record.time);
  write_step(line, record.step);
  write_text(line, "name", picture.name);
  write_text(line, "file", path.substr(run_.folder.size() + 1));
  if (picture.width > 0) {
    write_integer(line, "width", picture.width);
    write_integer(line, "height", picture.height);
  }
  end_line(line);
}

void JsonLines::write(const Record& record) {
  switch (record.kind) {
    case Record::Kind::kValues:
      return write_values(record);
    case Record::Kind::kImages:
    case Record::Kind::kFigure:
      for (const Picture& picture : record.pictures)
        write_picture(record.kind == Record::Kind::kImages ? "image" : "figure", record, picture);
      return;
    case Record::Kind::kConfiguration: {
      JsonWriter line = begin_line("config", record.time);
      line.name("values");
      line.value(record.document);
      return end_line(line);
    }
    case Record::Kind::kArtifact: {
      const std::string name = file_name_of(record.name);
      side_files_.push_back({run_.folder + "/artifacts/" + name, "", record.path});
      JsonWriter line = begin_line("artifact", record.time);
      write_text(line, "name", record.name);
      write_text(line, "file", "artifacts/" + name);
      return end_line(line);
    }
    case Record::Kind::kTable:
    case Record::Kind::kStepReport: {
      JsonWriter line = begin_line(record.kind == Record::Kind::kTable ? "table" : "step_report", record.time);
      write_step(line, record.step);
      if (record.kind == Record::Kind::kTable) write_text(line, "name", record.name);
      for (const auto& [key, value] : *record.document.members()) {
        line.name(key);
        line.value(value);
      }
      return end_line(line);
    }
  }
}

void JsonLines::flush(bool durable) {
  if (file_.renew_if_removed()) {
    std::string lines = std::exchange(file_.buffer(), {});
    write_run();
    file_.buffer() += lines;
  }
  std::exception_ptr failed;
  try {
    write_side_files();
    if (durable) sync_side_files();
  } catch (const Error&) {  // the lines do not wait for it
    failed = std::current_exception();
  }
  file_.flush(durable);
  if (failed != nullptr) std::rethrow_exception(failed);
}

void JsonLines::write_side_files() {
  while (!side_files_.empty()) {
    const SideFile& file = side_files_.front();
    const bool is_lost = !file.copied_from.empty() && ::access(file.copied_from.c_str(), R_OK) != 0;
    if (is_lost) {
      const std::string path = std::move(side_files_.front().copied_from);
      side_files_.erase(side_files_.begin());
      fail(Status::kIo, "the artifact '", path, "' is gone; expected it until accel_flush_trackers()");
    }
    make_folder(file.path.substr(0, file.path.find_last_of('/')));
    if (file.copied_from.empty())
      write_file(file.path, file.bytes);
    else
      copy_files(file.copied_from, file.path);
    not_synced_.push_back(file.path);
    side_files_.erase(side_files_.begin());
  }
}

void JsonLines::sync_side_files() {
  while (!not_synced_.empty()) {
    sync_files(not_synced_.back());
    not_synced_.pop_back();
  }
}

size_t JsonLines::pending_bytes() const {
  size_t bytes = file_.pending_bytes();
  for (const SideFile& file : side_files_) bytes += file.bytes.size();
  return bytes;
}

void JsonLines::end(bool finished) {
  JsonWriter line = begin_line("end", present_time());
  write_text(line, "status", finished ? "finished" : "released");
  end_line(line);
}

}  // namespace accel::track
