// SPDX-License-Identifier: Apache-2.0
// Section 14: trackers.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <sys/stat.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/steps/step_measurement.hpp"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/tracking.hpp"
#include "capi/tracking/tracked_pictures.hpp"
#include "capi/tracking/tracked_values.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/owned_value.hpp"
#include "capi/values/value.hpp"
#include "config/generated/settings/state/state.hpp"
#include "tensor/bytes.hpp"
#include "tensor/tree.hpp"
#include "track/built_in_trackers.hpp"
#include "track/tracker.hpp"
#include "track/trackers.hpp"

namespace accel::capi {
namespace {

using track::Record;
using track::TrackerEvent;

static_assert(track::kNoStep == ACCEL_NO_STEP);
static_assert(static_cast<int32_t>(TrackerEvent::kStart) == ACCEL_TRACKER_START &&
              static_cast<int32_t>(TrackerEvent::kConfiguration) == ACCEL_TRACKER_CONFIGURATION &&
              static_cast<int32_t>(TrackerEvent::kValues) == ACCEL_TRACKER_VALUES &&
              static_cast<int32_t>(TrackerEvent::kImages) == ACCEL_TRACKER_IMAGES &&
              static_cast<int32_t>(TrackerEvent::kTable) == ACCEL_TRACKER_TABLE &&
              static_cast<int32_t>(TrackerEvent::kFigure) == ACCEL_TRACKER_FIGURE &&
              static_cast<int32_t>(TrackerEvent::kArtifact) == ACCEL_TRACKER_ARTIFACT &&
              static_cast<int32_t>(TrackerEvent::kFlush) == ACCEL_TRACKER_FLUSH &&
              static_cast<int32_t>(TrackerEvent::kFinish) == ACCEL_TRACKER_FINISH);
static_assert(static_cast<int32_t>(TrackerFailure::kWarn) == ACCEL_TRACKER_FAILURE_WARN &&
              static_cast<int32_t>(TrackerFailure::kStop) == ACCEL_TRACKER_FAILURE_STOP);

class CallbackTracker final : public track::ApplicationTracker {
 public:
  CallbackTracker(const char* name, TrackerSettings settings, Callback<accel_tracker_fn> callback)
      : ApplicationTracker(name), settings_(std::move(settings)), callback_(std::move(callback)) {}
  bool main_process_only() const override { return settings_.main_process_only; }
  bool requires_logging_directory() const override { return settings_.requires_logging_directory; }

  void receive(TrackerEvent event, const c10::IValue* content, int64_t step) override {
    accel_value_t value = content == nullptr ? accel_value_t ACCEL_VALUE_INIT : from_ivalue(*content);
    const DisposeValue disposed(value);
    const uint64_t errors_before = thread_error().count;
    const accel_status_t status = callback_(static_cast<accel_tracker_event_t>(event), &value, step);
    if (status < 0)
      fail(static_cast<Status>(status), "tracker '", name(),
           "' failed: ", callback_message(status, errors_before, "tracker"));
  }

 private:
  TrackerSettings settings_;
  Callback<accel_tracker_fn> callback_;
};

track::Trackers& trackers_of(const accel_state_t* state) { return accelerator_of(state)->measurement().trackers(); }

c10::IValue read_map(const accel_value_t* value, const char* name) {
  c10::IValue read = to_ivalue(*check_pointer(value, name), name);
  require(read.isGenericDict(), Status::kTypeMismatch, name, " is of kind ", tree::kind_name(read),
          "; expected a map from names to values");
  return read;
}

// None for NULL and for NONE.
c10::IValue optional_map(const accel_value_t* value, const char* name) {
  return value == nullptr || value->kind == ACCEL_VALUE_NONE ? c10::IValue() : read_map(value, name);
}

// To the trackers of the program, of content that is made only when there are any.
template <typename Content>
void notify(track::Trackers& trackers, TrackerEvent event, int64_t step, const Content& content) {
  if (!trackers.has_applications()) return;
  const c10::IValue same = content();
  trackers.notify(event, step, [&](const track::ApplicationTracker& /*tracker*/) { return &same; });
}

// Logs to the built-in trackers, and tells those of the program also when the disk is full. What is not a value is an
// error before anybody has the others.
template <typename Log, typename Notify>
void log_and_notify(const Log& log, const Notify& notify) {
  std::exception_ptr failed;
  try {
    log();
  } catch (const Error& error) {
    if (error.status() != Status::kIo) throw;
    failed = std::current_exception();
  }
  notify();
  if (failed != nullptr) std::rethrow_exception(failed);
}

c10::IValue values_content(const c10::IValue& values, c10::IValue kwargs) {
  auto map = tree::new_map();
  map.insert("values", values);
  map.insert("kwargs", std::move(kwargs));
  return map;
}

c10::IValue member_or_empty(const c10::IValue& map, const std::string& key) {
  if (map.isGenericDict()) {
    const auto dict = map.toGenericDict();
    if (const auto found = dict.find(key); found != dict.end()) return found->value();
  }
  return tree::new_map();
}

void log_values(track::Trackers& trackers, const c10::IValue& values, int64_t step, const c10::IValue& log_kwargs) {
  log_and_notify([&] { trackers.log(step, [&](Record& record) { add_members(record, "", values); }); },
                 [&] {
                   if (!trackers.has_applications()) return;
                   c10::IValue content;
                   trackers.notify(TrackerEvent::kValues, step, [&](const track::ApplicationTracker& tracker) {
                     content = values_content(values, member_or_empty(log_kwargs, tracker.name()));
                     return &content;
                   });
                 });
}

c10::IValue read_list(const accel_value_t* value, const char* name) {
  c10::IValue read = to_ivalue(*check_pointer(value, name), name);
  require(tree::is_sequence(read), Status::kTypeMismatch, name, " is of kind ", tree::kind_name(read),
          "; expected a list");
  return read;
}

Json table_document(const c10::IValue& columns, const c10::IValue& rows) {
  const size_t width = tree::sequence_items(columns).size();
  size_t number = 0;
  for (const c10::IValue& column : tree::sequence_items(columns))
    require(column.isString(), Status::kTypeMismatch, "columns has a ", tree::kind_name(column), "; expected texts");
  for (const c10::IValue& row : tree::sequence_items(rows)) {
    require(tree::is_sequence(row), Status::kTypeMismatch, "row ", number, " of rows is of kind ", tree::kind_name(row),
            "; expected a list");
    require(tree::sequence_items(row).size() == width, Status::kShapeMismatch, "row ", number, " of rows has ",
            tree::sequence_items(row).size(), " cells; expected ", width, ", as columns");
    number++;
  }
  return Json(Json::Members{{"columns", tracked_json(columns, "columns")}, {"rows", tracked_json(rows, "rows")}});
}

c10::IValue start_content(const track::Run& run, const c10::IValue& options) {
  auto map = tree::new_map();
  map.insert("project", run.project);
  map.insert("run", run.name);
  map.insert("logging_dir", run.logging_dir.empty() ? c10::IValue() : c10::IValue(run.logging_dir));
  map.insert("rank", int64_t{run.rank});
  map.insert("world_size", int64_t{run.world_size});
  map.insert("options", options);
  return map;
}

c10::IValue text_list(const std::vector<std::string>& texts) {
  std::vector<c10::IValue> items;
  for (const std::string& each : texts) items.emplace_back(each);
  return tree::new_list(std::move(items));
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_init_trackers(accel_state_t* state, const char* project_name,
                                                  const accel_value_t* config, const accel_value_t* init_kwargs,
                                                  const accel_tracking_options_t* options) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    track::TrackingStart start;
    start.project = check_pointer(project_name, "project_name");
    const c10::IValue configuration = optional_map(config, "config"), kwargs = optional_map(init_kwargs, "init_kwargs");
    start.configuration = tracked_json(configuration, "");
    start.options = tracked_json(kwargs, "");
    start.settings = read_settings(options, "options");
    if (start.settings.logging_dir.value.empty())
      start.settings.logging_dir = accelerator.projects().project().settings().logging_dir.value;
    if (start.settings.logging_dir.value.empty())
      start.settings.logging_dir = accelerator.projects().project().settings().project_dir.value;
    start.version = text(ACCEL_VERSION_MAJOR, ".", ACCEL_VERSION_MINOR, ".", ACCEL_VERSION_PATCH);
    start.rank = accelerator.state().process_index();
    start.world_size = accelerator.state().num_processes();
    track::Trackers& trackers = accelerator.measurement().trackers();
    trackers.start(start);
    c10::IValue content;
    try {
      trackers.notify(TrackerEvent::kStart, track::kNoStep, [&](const track::ApplicationTracker& tracker) {
        content = start_content(trackers.run(), member_or_empty(kwargs, tracker.name()));
        return &content;
      });
      if (!configuration.isNone())
        notify(trackers, TrackerEvent::kConfiguration, track::kNoStep, [&] { return configuration; });
    } catch (...) {
      const std::exception_ptr failed = std::current_exception();
      try {
        trackers.finish();
      } catch (const std::exception&) {  // the first error is the one that tells why
      }
      std::rethrow_exception(failed);
    }
  });
}

ACCEL_FUNCTION accel_status_t accel_log(accel_state_t* state, const accel_value_t* values, int64_t step,
                                        const accel_value_t* log_kwargs) {
  return guarded(__func__, [&] {
    track::Trackers& trackers = trackers_of(state);
    const c10::IValue map = read_map(values, "values");
    log_values(trackers, map, step, optional_map(log_kwargs, "log_kwargs"));
    accelerator_of(state)->measurement().note_log(trackers.step_report_interval());
  });
}

ACCEL_FUNCTION accel_status_t accel_log_scalars(accel_state_t* state, const char* const* names, const double* values,
                                                size_t n_values, int64_t step) {
  return guarded(__func__, [&] {
    track::Trackers& trackers = trackers_of(state);
    check_array(check_pointer(names, "names"), n_values, "names");
    check_array(check_pointer(values, "values"), n_values, "values");
    for (size_t i = 0; i < n_values; i++) check_text(check_pointer(names[i], "names[i]"), "names");
    log_and_notify(
        [&] {
          trackers.log(step, [&](Record& record) {
            for (size_t i = 0; i < n_values; i++) record.add_number(names[i], values[i]);
          });
        },
        [&] {
          notify(trackers, TrackerEvent::kValues, step, [&] {
            auto map = tree::new_map();
            for (size_t i = 0; i < n_values; i++) map.insert_or_assign(std::string(names[i]), values[i]);
            return values_content(map, tree::new_map());
          });
        });
    accelerator_of(state)->measurement().note_log(trackers.step_report_interval());
  });
}

ACCEL_FUNCTION accel_status_t accel_log_images(accel_state_t* state, const accel_value_t* images,
                                               int32_t channels_first, int64_t step) {
  return guarded(__func__, [&] {
    track::Trackers& trackers = trackers_of(state);
    const c10::IValue map = read_map(images, "images");
    const bool first = read_flag(channels_first, "channels_first");
    log_and_notify(
        [&] {
          if (!trackers.has_built_in()) return;
          trackers.log(step, [&](Record& record) {
            record.kind = Record::Kind::kImages;
            for (const auto& member : map.toGenericDict())
              add_images(record, key_text(member.key()), member.value(), first);
          });
        },
        [&] {
          notify(trackers, TrackerEvent::kImages, step, [&] {
            auto content = tree::new_map();
            content.insert("images", map);
            content.insert("channels_first", first);
            return content;
          });
        });
  });
}

ACCEL_FUNCTION accel_status_t accel_log_table(accel_state_t* state, const char* name, const accel_value_t* columns,
                                              const accel_value_t* rows, int64_t step) {
  return guarded(__func__, [&] {
    track::Trackers& trackers = trackers_of(state);
    check_text(check_pointer(name, "name"), "name");
    check_pointer(columns, "columns");
    check_pointer(rows, "rows");
    const c10::IValue heads = read_list(columns, "columns"), lines = read_list(rows, "rows");
    log_and_notify(
        [&] {
          trackers.log(step, [&](Record& record) {
            record.kind = Record::Kind::kTable;
            record.name = name;
            record.document = table_document(heads, lines);
            record.count_bytes(print_json(record.document).size());
          });
        },
        [&] {
          notify(trackers, TrackerEvent::kTable, step, [&] {
            auto content = tree::new_map();
            content.insert("name", std::string(name));
            content.insert("columns", heads);
            content.insert("rows", lines);
            return content;
          });
        });
  });
}

ACCEL_FUNCTION accel_status_t accel_log_figure(accel_state_t* state, const char* name, const void* bytes,
                                               size_t n_bytes, int64_t step) {
  return guarded(__func__, [&] {
    track::Trackers& trackers = trackers_of(state);
    check_text(check_pointer(name, "name"), "name");
    const auto* const first = static_cast<const char*>(check_pointer(bytes, "bytes"));
    const std::string_view content(check_array(first, n_bytes, "bytes"), n_bytes);
    log_and_notify(
        [&] {
          trackers.log(step, [&](Record& record) {
            record.kind = Record::Kind::kFigure;
            record.pictures.push_back(figure_of(name, content));
          });
        },
        [&] {
          notify(trackers, TrackerEvent::kFigure, step, [&] {
            auto map = tree::new_map();
            map.insert("name", std::string(name));
            map.insert("bytes", tree::bytes_value(std::string(content), ""));
            return map;
          });
        });
  });
}

ACCEL_FUNCTION accel_status_t accel_log_artifact(accel_state_t* state, const char* path, const char* name) {
  return guarded(__func__, [&] {
    track::Trackers& trackers = trackers_of(state);
    check_text(check_pointer(path, "path"), "path");
    if (name != nullptr) check_text(name, "name");
    struct stat found {};
    require(::stat(path, &found) == 0, Status::kNotFound, "there is no file or folder '", path, "'");
    std::string trimmed = path;
    while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
    log_and_notify(
        [&] {
          trackers.log(track::kNoStep, [&](Record& record) {
            record.kind = Record::Kind::kArtifact;
            record.path = trimmed;
            record.name = name != nullptr ? name : trimmed.substr(trimmed.find_last_of('/') + 1);
          });
        },
        [&] {
          notify(trackers, TrackerEvent::kArtifact, track::kNoStep, [&] {
            auto map = tree::new_map();
            map.insert("path", std::string(path));
            map.insert("name", name == nullptr ? c10::IValue() : c10::IValue(std::string(name)));
            return map;
          });
        });
  });
}

ACCEL_FUNCTION accel_status_t accel_flush_trackers(accel_state_t* state) {
  return guarded(__func__, [&] { trackers_of(state).flush(); });
}

ACCEL_FUNCTION accel_status_t accel_finish_trackers(accel_state_t* state) {
  return guarded(__func__, [&] { trackers_of(state).finish(); });
}

ACCEL_FUNCTION accel_status_t accel_get_tracker(accel_state_t* state, const char* name, accel_tracker_t** out) {
  return guarded(__func__, out, [&] { return trackers_of(state).find(check_pointer(name, "name")); });
}

ACCEL_FUNCTION accel_status_t accel_trackers(accel_state_t* state, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(text_list(trackers_of(state).names())); });
}

ACCEL_FUNCTION accel_status_t accel_available_trackers(accel_value_t* out) {
  return guarded(__func__, out, [] { return from_ivalue(text_list(track::built_in_names())); });
}

ACCEL_FUNCTION accel_status_t accel_tracker_create(const char* name, const accel_tracker_options_t* options,
                                                   accel_tracker_fn tracker, void* user_data, accel_destroy_fn destroy,
                                                   accel_tracker_t** out) {
  return guarded(__func__, [&] {
    Callback<accel_tracker_fn> callback(tracker, user_data, destroy);
    check_pointer(out, "out");
    check_text(check_pointer(name, "name"), "name");
    check_pointer(tracker, "tracker");
    require(*name != '\0' && std::string_view(name).find(',') == std::string_view::npos, Status::kInvalidArgument,
            "name is '", name, "'; expected a name without commas");
    write_output(out, std::make_shared<CallbackTracker>(name, read_settings(options, "options"), std::move(callback)));
  });
}

ACCEL_FUNCTION accel_tracker_t* accel_tracker_retain(accel_tracker_t* tracker) {
  return retain_handle(__func__, tracker, "tracker");
}

ACCEL_FUNCTION void accel_tracker_release(accel_tracker_t* tracker) { release_handle(tracker); }

ACCEL_FUNCTION accel_status_t accel_add_tracker(accel_state_t* state, accel_tracker_t* tracker) {
  return guarded(__func__, [&] {
    track::Trackers& trackers = trackers_of(state);
    const auto& given = check(tracker, "tracker").tracker;
    auto added = std::dynamic_pointer_cast<track::ApplicationTracker>(given);
    require(added != nullptr, Status::kInvalidArgument, "tracker '", given->name(),
            "' is none of the program; expected one of accel_tracker_create()");
    trackers.add(std::move(added));
  });
}

ACCEL_FUNCTION accel_status_t accel_tracker_location(const accel_tracker_t* tracker, accel_buffer_t* out) {
  return guarded(__func__, out, [&] { return new_buffer(check(tracker, "tracker").tracker->location()); });
}

ACCEL_FUNCTION accel_status_t accel_tracker_log(accel_tracker_t* tracker, const accel_value_t* values, int64_t step) {
  return guarded(__func__, [&] {
    track::Tracker& logged = *check(tracker, "tracker").tracker;
    const c10::IValue map = read_map(values, "values");
    if (auto* const application = dynamic_cast<track::ApplicationTracker*>(&logged)) {
      require(application->is_running(), Status::kInvalidState, "tracker '", logged.name(),
              "' does not run here; call accel_init_trackers() after accel_add_tracker()");
      const c10::IValue content = values_content(map, tree::new_map());
      return application->receive(TrackerEvent::kValues, &content, step);
    }
    Record record;
    record.step = step;
    record.time = track::present_time();
    add_members(record, "", map);
    logged.log(record);
  });
}

}  // namespace accel::capi
