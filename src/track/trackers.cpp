// SPDX-License-Identifier: Apache-2.0
#include "track/trackers.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/name_list.hpp"
#include "base/split_text.hpp"
#include "os/host_name.hpp"
#include "os/list_folder.hpp"
#include "track/built_in_trackers.hpp"
#include "track/run_folder.hpp"

namespace accel::track {
namespace {

std::string without_blanks(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// In the order in which they are named, each once.
std::vector<std::string> names_of(const std::string& log_with) {
  std::vector<std::string> names;
  for (const std::string& part : split_text(log_with)) {
    const std::string name = without_blanks(part);
    for (const std::string& each : name == "all" ? built_in_names() : std::vector<std::string>{name})
      if (std::find(names.begin(), names.end(), each) == names.end()) names.push_back(each);
  }
  return names;
}

const BuiltIn* find_built_in(const std::vector<BuiltIn>& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const BuiltIn& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

bool has_run(const std::string& folder) {
  if (!is_folder(folder)) return false;
  const std::vector<std::string> names = list_folder(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name == "metrics.jsonl" || name == "metrics.csv" || name.rfind("events.out.tfevents.", 0) == 0;
  });
}

void check_options(const BuiltIn& tracker, const Json& options) {
  if (options.members() == nullptr) return;
  for (const auto& [key, value] : *options.members()) {
    const auto is_key = [&key = key](const char* known) { return key == known; };
    if (std::none_of(tracker.options.begin(), tracker.options.end(), is_key))
      fail(Status::kInvalidArgument, "init_kwargs has '", key, "' for tracker '", tracker.name, "'; expected ",
           tracker.options.empty() ? "no options" : list_names({tracker.options.begin(), tracker.options.end()}));
  }
}

// A tracker of the program may have such a name.
void leave_out_packages(std::vector<std::string>& names, const ApplicationTrackers& applications, bool is_told) {
  const auto is_absent = [&](const std::string& name) { return is_package_of_python(name) && !applications.has(name); };
  for (const std::string& name : names)
    if (is_told && is_absent(name))
      accel::log(LogLevel::kWarning, "the tracker '", name, "' is left out: it is a package of Python; here are ",
                 list_names(built_in_names()), ", and what accel_add_tracker() adds");
  names.erase(std::remove_if(names.begin(), names.end(), is_absent), names.end());
}

Json options_of(const Json& all, const std::string& name) {
  const Json* const options = json_member(all, name);
  return options == nullptr ? Json(Json::Members()) : *options;
}

}  // namespace

Trackers::Trackers() = default;

Trackers::~Trackers() {
  try {
    finish(/*finished=*/false);
  } catch (const std::exception& error) {
    accel::log(LogLevel::kError, "the trackers ended with an error: ", error.what());
  }
}

void Trackers::add(std::shared_ptr<ApplicationTracker> tracker) {
  require(!is_running_, Status::kInvalidState,
          "the trackers run already; add one before accel_init_trackers(), or after accel_finish_trackers()");
  applications_.add(std::move(tracker));
}

void Trackers::check(const TrackingStart& start, const std::vector<std::string>& names) const {
  const std::vector<BuiltIn> all = built_in_trackers();
  const auto require_folder = [&](const std::string& name) {
    require(!start.settings.logging_dir.value.empty(), Status::kInvalidArgument, "tracker '", name,
            "' needs logging_dir, which is not set; set it, or that of the project, or ACCELERATE_LOGGING_DIR");
  };
  require(!start.project.empty(), Status::kInvalidArgument, "project_name is empty; expected a name");
  for (const std::string& name : names) {
    const BuiltIn* const found = find_built_in(all, name);
    if (found == nullptr && (applications_.has(name) || is_package_of_python(name))) continue;
    require(found != nullptr, Status::kInvalidArgument, "log_with has the unknown tracker '", name, "'; expected ",
            list_names(built_in_names()), " or 'all'");
    if (found->requires_logging_directory) require_folder(name);
    check_options(*found, options_of(start.options, name));
  }
  for (const auto& tracker : applications_.added())
    if (tracker->requires_logging_directory()) require_folder(tracker->name());
  if (start.options.members() == nullptr) return;
  for (const auto& [name, options] : *start.options.members())
    require(find_built_in(all, name) != nullptr || applications_.has(name) || is_package_of_python(name),
            Status::kInvalidArgument, "init_kwargs has options of the unknown tracker '", name, "'; expected ",
            list_names(built_in_names()), " or one of accel_add_tracker()");
}

void Trackers::start_built_in(const TrackingStart& start, const std::vector<std::string>& names) {
  const std::vector<BuiltIn> all = built_in_trackers();
  std::vector<std::vector<RecordWriter::NamedSink>> groups(1);  // the first: local ones
  for (const std::string& name : names) {
    const BuiltIn* const tracker = find_built_in(all, name);
    if (tracker == nullptr) continue;
    if (tracker->requires_logging_directory && lock_ == nullptr) {
      make_folder(run_.folder);
      lock_ = std::make_unique<RunLock>(run_.folder);
      run_.resumed = has_run(run_.folder);
      require(!run_.resumed || start.settings.resume, Status::kAlreadyExists, "there is a run in '", run_.folder,
              "' and resume is 0; take another run_name, or let it go on with resume 1");
    }
    const Json options = options_of(start.options, name);
    std::unique_ptr<RecordSink> sink = tracker->make(run_, options);
    if (sink == nullptr) continue;
    if (tracker->is_remote(options)) groups.emplace_back();
    (tracker->is_remote(options) ? groups.back() : groups.front()).push_back({name, std::move(sink)});
  }
  for (auto& group : groups) {
    if (group.empty()) continue;
    std::vector<std::pair<std::string, std::string>> located;
    for (const RecordWriter::NamedSink& each : group) located.emplace_back(each.name, each.sink->location());
    writers_.push_back(std::make_shared<RecordWriter>(std::move(group),
                                                      std::chrono::milliseconds(start.settings.flush_interval_ms),
                                                      static_cast<size_t>(start.settings.queue_bytes.value)));
    for (size_t i = 0; i < located.size(); i++)
      built_in_.push_back(
          std::make_shared<BuiltInTracker>(located[i].first, located[i].second, writers_.back(), static_cast<int>(i)));
  }
}

void Trackers::start(const TrackingStart& start) {
  std::vector<std::string> names = names_of(start.settings.log_with);
  check(start, names);
  leave_out_packages(names, applications_, start.rank == 0);
  finish();
  const std::string& logging_dir = start.settings.logging_dir;
  run_ = Run();
  run_.project = start.project;
  run_.name = start.settings.run_name.value.empty() ? start.project : start.settings.run_name.value;
  run_.logging_dir = logging_dir;
  if (!logging_dir.empty()) run_.folder = logging_dir + "/" + file_name_of(run_.name);
  run_.host = host_name();
  run_.version = start.version;
  run_.rank = start.rank;
  run_.world_size = start.world_size;
  applications_.set_on_failure(start.settings.on_failure);
  step_report_interval_ = start.settings.step_report_interval;
  is_running_ = true;
  try {
    if (start.rank == 0)
      start_built_in(start, names);
    else
      for (const std::string& name : names)
        if (!applications_.has(name)) elsewhere_.push_back(name);
    for (const auto& tracker : applications_.added())
      if (start.rank == 0 || !tracker->main_process_only())
        applications_.run(tracker);
      else
        elsewhere_.push_back(tracker->name());
    if (start.configuration.members() != nullptr)
      log(kNoStep, [&](Record& record) {
        record.kind = Record::Kind::kConfiguration;
        record.document = start.configuration;
      });
  } catch (...) {
    applications_.stop();  // they have received nothing
    finish();
    throw;
  }
}

void Trackers::finish(bool finished) {
  if (!is_running_) return;
  std::exception_ptr first;
  const auto try_to = [&](const auto& action) {
    try {
      action();
    } catch (const std::exception&) {
      if (first == nullptr) first = std::current_exception();
    }
  };
  try_to([&] { notify(TrackerEvent::kFinish, kNoStep, nullptr); });
  for (const auto& writer : writers_) try_to([&] { writer->finish(finished); });
  writers_.clear();
  built_in_.clear();
  applications_.stop();
  elsewhere_.clear();
  lock_.reset();
  is_running_ = false;
  if (first != nullptr) std::rethrow_exception(first);
}

void Trackers::add_to_writers() {
  record_.time = present_time();
  for (const Picture& picture : record_.pictures) record_.count_bytes(picture.bytes.size());
  std::exception_ptr first;
  for (const auto& writer : writers_) {
    try {
      writer->add(record_);
    } catch (const Error&) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

void Trackers::log_step_report(Json report) {
  log(record_.step, [&](Record& record) {
    record.kind = Record::Kind::kStepReport;
    record.document = std::move(report);
  });
}

void Trackers::flush() {
  notify(TrackerEvent::kFlush, kNoStep, nullptr);
  for (const auto& writer : writers_) writer->flush();
}

std::vector<std::string> Trackers::names() const {
  std::vector<std::string> names;
  for (const auto& tracker : built_in_) names.push_back(tracker->name());
  for (const auto& tracker : applications_.running()) names.push_back(tracker->name());
  return names;
}

std::shared_ptr<Tracker> Trackers::find(const std::string& name) const {
  if (const auto found = find_named(built_in_, name); found != built_in_.end()) return *found;
  const auto& applications = applications_.running();
  if (const auto found = find_named(applications, name); found != applications.end()) return *found;
  std::vector<std::string> known = names();
  known.insert(known.end(), elsewhere_.begin(), elsewhere_.end());
  require(known.empty() || std::find(elsewhere_.begin(), elsewhere_.end(), name) != elsewhere_.end(), Status::kNotFound,
          "there is no tracker '", name, "'; running are ", list_names(known));
  return std::make_shared<Tracker>(name);
}

}  // namespace accel::track
