#include "track/json_lines.hpp"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <exception>
#include <fstream>
#include <utility>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "machine/processors.hpp"
#include "track/json_text.hpp"
#include "track/run_folder.hpp"
#include "track/text_numbers.hpp"

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

void append_json_number(std::string& out, double number) {
  if (std::isfinite(number))
    append_number(out, number);
  else
    append_json_text(out, word_of(number));
}

void append_member(std::string& out, std::string_view key, std::string_view value) {
  out += ",\"";
  out += key;
  out += "\":";
  append_json_text(out, value);
}

void append_step(std::string& out, int64_t step) {
  out += ",\"step\":";
  if (step == kNoStep)
    out += "null";
  else
    append_number(out, step);
}

template <typename Numbers>
void append_list(std::string& out, const char* key, const Numbers& numbers) {
  out += ",\"";
  out += key;
  out += "\":[";
  for (size_t i = 0; i < numbers.size(); i++) {
    if (i > 0) out += ',';
    append_number(out, numbers[i]);
  }
  out += ']';
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

void JsonLines::begin_line(const char* type, double time) {
  std::string& out = file_.buffer();
  out += "{\"type\":\"";
  out += type;
  out += "\",\"time\":";
  append_number(out, time);
}

void JsonLines::write_run() {
  std::string& out = file_.buffer();
  begin_line("run", present_time());
  append_member(out, "project", run_.project);
  append_member(out, "run", run_.name);
  append_member(out, "host", run_.host);
  out += text(",\"pid\":", ::getpid(), ",\"rank\":", run_.rank, ",\"world_size\":", run_.world_size);
  append_member(out, "version", run_.version);
  out += text(",\"resumed\":", run_.resumed ? "true" : "false", ",\"environment\":", print_json(environment_of_run()));
  out += "}\n";
}

void JsonLines::write_values(const Record& record) {
  std::string& out = file_.buffer();
  bool has_values = record.size() == 0;  // an empty map is a line, too
  for (size_t i = 0; i < record.size(); i++) has_values |= record.value(i).kind != Record::ValueKind::kHistogram;
  if (has_values) {
    begin_line("values", record.time);
    append_step(out, record.step);
    out += ",\"values\":{";
    bool is_first = true;
    for (size_t i = 0; i < record.size(); i++) {
      const Record::Value value = record.value(i);
      if (value.kind == Record::ValueKind::kHistogram) continue;
      if (!std::exchange(is_first, false)) out += ',';
      append_json_text(out, value.name);
      out += ':';
      if (value.kind == Record::ValueKind::kText)
        append_json_text(out, value.text);
      else if (value.kind == Record::ValueKind::kInteger)
        append_number(out, value.integer);
      else
        append_json_number(out, value.number);
    }
    out += "}}\n";
  }
  for (size_t i = 0; i < record.size(); i++)
    if (record.value(i).kind == Record::ValueKind::kHistogram) write_histogram(record, record.value(i));
}

void JsonLines::write_histogram(const Record& record, const Record::Value& value) {
  std::string& out = file_.buffer();
  begin_line("histogram", record.time);
  append_step(out, record.step);
  append_member(out, "name", value.name);
  out += ",\"min\":";
  append_number(out, value.histogram->min);
  out += ",\"max\":";
  append_number(out, value.histogram->max);
  out += ",\"count\":";
  append_number(out, value.histogram->count);
  out += ",\"sum\":";
  append_json_number(out, value.histogram->sum);
  append_list(out, "edges", value.histogram->edges);
  append_list(out, "counts", value.histogram->counts);
  out += "}\n";
}

void JsonLines::write_picture(const char* type, const Record& record, const Picture& picture) {
  const std::string folder = text(type, "s");
  std::string name = file_name_of(picture.name);
  if (record.step != kNoStep) name += text("_", record.step);
  make_folder(run_.folder + "/" + folder);
  const std::string path = free_path(run_.folder + "/" + folder, name, "." + picture.format);
  write_file(path, "");  // the name is taken
  side_files_.push_back({path, picture.bytes, ""});
  begin_line(type, record.time);
  std::string& out = file_.buffer();
  append_step(out, record.step);
  append_member(out, "name", picture.name);
  append_member(out, "file", path.substr(run_.folder.size() + 1));
  if (picture.width > 0) out += text(",\"width\":", picture.width, ",\"height\":", picture.height);
  out += "}\n";
}

void JsonLines::write(const Record& record) {
  std::string& out = file_.buffer();
  switch (record.kind) {
    case Record::Kind::kValues:
      return write_values(record);
    case Record::Kind::kImages:
    case Record::Kind::kFigure:
      for (const Picture& picture : record.pictures)
        write_picture(record.kind == Record::Kind::kImages ? "image" : "figure", record, picture);
      return;
    case Record::Kind::kConfiguration:
      begin_line("config", record.time);
      out += ",\"values\":" + print_json(record.document) + "}\n";
      return;
    case Record::Kind::kArtifact: {
      const std::string name = file_name_of(record.name);
      side_files_.push_back({run_.folder + "/artifacts/" + name, "", record.path});
      begin_line("artifact", record.time);
      append_member(out, "name", record.name);
      append_member(out, "file", "artifacts/" + name);
      out += "}\n";
      return;
    }
    case Record::Kind::kTable:
    case Record::Kind::kStepReport:
      begin_line(record.kind == Record::Kind::kTable ? "table" : "step_report", record.time);
      append_step(out, record.step);
      if (record.kind == Record::Kind::kTable) append_member(out, "name", record.name);
      for (const auto& [key, value] : *record.document.members()) out += ",\"" + key + "\":" + print_json(value);
      out += "}\n";
      return;
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
    side_files_.erase(side_files_.begin());
  }
}

size_t JsonLines::pending_bytes() const {
  size_t bytes = file_.pending_bytes();
  for (const SideFile& file : side_files_) bytes += file.bytes.size();
  return bytes;
}

void JsonLines::end(bool finished) {
  begin_line("end", present_time());
  append_member(file_.buffer(), "status", finished ? "finished" : "released");
  file_.buffer() += "}\n";
}

}  // namespace accel::track
