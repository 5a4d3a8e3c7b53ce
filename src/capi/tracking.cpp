// Section 14: trackers.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/step_report.hpp"
#include "base/error.hpp"
#include "capi/buffer.hpp"
#include "capi/callback.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "capi/owned_value.hpp"
#include "capi/value.hpp"
#include "tensor/access.hpp"
#include "tensor/bytes.hpp"
#include "tensor/tree.hpp"
#include "track/built_in_trackers.hpp"
#include "track/png.hpp"
#include "track/text_numbers.hpp"
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

constexpr int64_t kBins = 64;
constexpr int64_t kLargestSide = 1 << 16;

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

track::Trackers& trackers_of(const accel_state_t* state) { return accelerator_of(state)->trackers(); }

std::string below(const std::string& path, std::string_view key) {
  std::string name = path;
  if (!name.empty()) name += '/';
  return name.append(key);
}

std::string key_text(const c10::IValue& key) {
  return key.isString() ? key.toStringRef() : std::to_string(key.toInt());
}

// A configuration or options, with what JSON lacks as text.
Json json_of(const c10::IValue& value, const std::string& path) {
  if (value.isNone()) return {};
  if (value.isBool()) return Json(value.toBool());
  if (value.isInt()) return Json::number(value.toInt());
  if (value.isDouble())
    return std::isfinite(value.toDouble()) ? Json::number(value.toDouble()) : Json(track::word_of(value.toDouble()));
  if (value.isString()) return Json(value.toStringRef());
  if (value.isTensor()) return json_of(tree::listify(value), path);
  if (tree::is_sequence(value)) {
    Json::Items items;
    for (const c10::IValue& item : tree::sequence_items(value)) items.push_back(json_of(item, path));
    return Json(std::move(items));
  }
  if (value.isGenericDict()) {
    Json::Members members;
    for (const auto& member : value.toGenericDict()) {
      std::string key = key_text(member.key());
      Json inner = json_of(member.value(), below(path, key));
      members.emplace_back(std::move(key), std::move(inner));
    }
    return Json(std::move(members));
  }
  if (value.isDevice()) return Json(value.toDevice().str());
  fail(Status::kTypeMismatch, "'", path, "' is of kind ", tree::kind_name(value),
       "; expected numbers, texts, tensors, lists and maps");
}

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

track::Histogram histogram_of(const at::Tensor& given) {
  const at::Tensor tensor = given.detach().to(c10::Device(c10::kCPU), at::kDouble).contiguous();
  const double* const begin = tensor.const_data_ptr<double>();
  const double* const end = begin + tensor.numel();
  track::Histogram result;
  for (const double* element = begin; element != end; element++) {
    if (!std::isfinite(*element)) continue;
    result.min = result.count == 0 ? *element : std::min(result.min, *element);
    result.max = result.count == 0 ? *element : std::max(result.max, *element);
    result.count++;
    result.sum += *element;
    result.sum_squares += *element * *element;
  }
  const int64_t bins = result.max > result.min ? kBins : 1;
  // Halves, because the difference of two finite numbers may not be one.
  const double width = result.max / static_cast<double>(bins) - result.min / static_cast<double>(bins);
  for (int64_t i = 0; i < bins; i++) result.edges.push_back(result.min + static_cast<double>(i) * width);
  result.edges.push_back(result.max);
  result.counts.resize(static_cast<size_t>(bins));
  for (const double* element = begin; element != end; element++) {
    if (!std::isfinite(*element)) continue;
    const double bin = width > 0 ? *element / width - result.min / width : 0;
    result.counts[static_cast<size_t>(std::clamp(bin, 0.0, static_cast<double>(bins - 1)))]++;
  }
  return result;
}

void add_tensor(Record& record, const std::string& name, const at::Tensor& tensor) {
  require(tensor.defined() && !tensor.is_complex(), Status::kTypeMismatch, "value '", name,
          "' is a tensor of complex numbers; expected real ones");
  require(!tensor.is_meta() && tensor.numel() > 0, Status::kTypeMismatch, "value '", name,
          "' is a tensor without elements; expected at least one");
  if (tensor.numel() > 1) {
    if (record.wants_histograms) record.add_histogram(name, histogram_of(tensor));
  } else if (c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
    record.add_integer(name, tensor::single_integer(tensor));
  } else {
    record.add_number(name, tensor::single_number(tensor));
  }
}

void add_value(Record& record, const std::string& name, const c10::IValue& value);

void add_members(Record& record, const std::string& path, const c10::IValue& map) {
  for (const auto& member : map.toGenericDict()) {
    const c10::IValue& key = member.key();
    const c10::IValue& value = member.value();
    // Most values are numbers with a short name, for which no text is made.
    if (path.empty() && key.isString() && value.isDouble())
      record.add_number(key.toStringRef(), value.toDouble());
    else
      add_value(record, below(path, key_text(key)), value);
  }
}

void add_value(Record& record, const std::string& name, const c10::IValue& value) {
  if (value.isDouble()) return record.add_number(name, value.toDouble());
  if (value.isInt()) return record.add_integer(name, value.toInt());
  if (value.isBool()) return record.add_integer(name, value.toBool() ? 1 : 0);
  if (value.isString()) return record.add_text(name, value.toStringRef());
  if (value.isTensor()) return add_tensor(record, name, value.toTensor());
  if (value.isGenericDict()) return add_members(record, name, value);
  fail(Status::kTypeMismatch, "value '", name, "' is of kind ", tree::kind_name(value),
       "; expected a number, a text, a tensor or a map of them");
}

// To the trackers of the program, of content that is made only when there are any.
template <typename Content>
void tell(track::Trackers& trackers, TrackerEvent event, int64_t step, const Content& content) {
  if (!trackers.has_applications()) return;
  const c10::IValue same = content();
  trackers.tell(event, step, [&](const track::ApplicationTracker& /*tracker*/) { return &same; });
}

// Logs to the built-in trackers, and tells those of the program also when the disk is full. What is no value is an
// error before anybody has the others.
template <typename Log, typename Tell>
void log_and_tell(const Log& log, const Tell& tell) {
  std::exception_ptr failed;
  try {
    log();
  } catch (const Error& error) {
    if (error.status() != Status::kIo) throw;
    failed = std::current_exception();
  }
  tell();
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
  log_and_tell([&] { trackers.log(step, [&](Record& record) { add_members(record, "", values); }); },
               [&] {
                 if (!trackers.has_applications()) return;
                 c10::IValue content;
                 trackers.tell(TrackerEvent::kValues, step, [&](const track::ApplicationTracker& tracker) {
                   content = values_content(values, member_or_empty(log_kwargs, tracker.name()));
                   return &content;
                 });
               });
}

// [height, width, channels] of uint8
at::Tensor pixels_of(const at::Tensor& image, const std::string& name) {
  const int64_t channels = image.size(2);
  require(channels == 1 || channels == 3 || channels == 4, Status::kShapeMismatch, "image '", name, "' has ", channels,
          " channels; expected 1, 3 or 4");
  require(image.size(0) > 0 && image.size(1) > 0 && image.size(0) <= kLargestSide && image.size(1) <= kLargestSide,
          Status::kShapeMismatch, "image '", name, "' is ", image.size(1), " x ", image.size(0),
          "; expected sides from 1 to ", kLargestSide);
  const at::Tensor on_cpu = image.detach().to(c10::Device(c10::kCPU), image.scalar_type());
  if (image.scalar_type() == at::kByte) return on_cpu.contiguous();
  const at::Tensor numbers = on_cpu.to(at::kFloat).contiguous();
  const float* const from = numbers.const_data_ptr<float>();
  at::Tensor pixels = numbers.to(at::kByte);
  auto* const to = pixels.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < numbers.numel(); i++) {
    const float level = std::isnan(from[i]) ? 0.0F : std::clamp(from[i], 0.0F, 1.0F);
    to[i] = static_cast<uint8_t>(std::lround(level * 255.0F));
  }
  return pixels;
}

void add_image(Record& record, const std::string& name, const at::Tensor& image) {
  const at::Tensor pixels = pixels_of(image, name);
  track::Picture picture{name, "", "png", pixels.size(1), pixels.size(0)};
  picture.bytes = track::encode_png(pixels.const_data_ptr<uint8_t>(), pixels.size(0), pixels.size(1), pixels.size(2));
  record.pictures.push_back(std::move(picture));
}

bool is_channel_count(int64_t size) { return size == 1 || size == 3 || size == 4; }

void add_images(Record& record, const std::string& name, const c10::IValue& value, bool channels_first) {
  require(value.isTensor(), Status::kTypeMismatch, "image '", name, "' is of kind ", tree::kind_name(value),
          "; expected a tensor");
  at::Tensor images = value.toTensor();
  require(images.scalar_type() == at::kByte || images.is_floating_point(), Status::kTypeMismatch, "image '", name,
          "' has elements of type ", images.scalar_type(), "; expected uint8 or floating numbers");
  require(!images.is_meta(), Status::kTypeMismatch, "image '", name, "' has no memory");
  require(images.dim() >= 2 && images.dim() <= 4, Status::kShapeMismatch, "image '", name, "' has ", images.dim(),
          " dimensions; expected 2, 3 or, of several, 4");
  if (images.dim() == 2) images = images.unsqueeze(channels_first ? 0 : 2);
  if (images.dim() == 3 && !is_channel_count(images.size(channels_first ? 0 : 2)))
    images = images.unsqueeze(channels_first ? 1 : 3);  // several without channels
  if (channels_first) images = images.movedim(images.dim() - 3, images.dim() - 1);
  if (images.dim() == 3) return add_image(record, name, images);
  for (int64_t i = 0; i < images.size(0); i++) add_image(record, text(name, "/", i), images.select(0, i));
}

// Of a PNG its width and height are told.
track::Picture figure_of(const char* name, std::string_view bytes) {
  const auto begins = [&](std::string_view with) { return bytes.substr(0, with.size()) == with; };
  track::Picture figure{name, std::string(bytes), "", 0, 0};
  const auto number_at = [&](size_t at) {
    int64_t number = 0;
    for (size_t i = at; i < at + 4; i++) number = number << 8 | static_cast<unsigned char>(bytes[i]);
    return number;
  };
  const size_t first = std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size());
  const std::string_view text = bytes.substr(first, 4096);
  if (begins("\x89PNG\r\n\x1a\n") && bytes.size() > 24) {
    figure.format = "png";
    figure.width = number_at(16);
    figure.height = number_at(20);
  } else if (begins("\xff\xd8\xff")) {
    figure.format = "jpg";
  } else if (text.substr(0, 1) == "<" && text.find("<svg") != std::string_view::npos) {
    figure.format = "svg";
  } else if (text.substr(0, 1) == "<") {
    figure.format = "html";
  }
  require(!figure.format.empty(), Status::kInvalidArgument, "figure '", name, "' of ", bytes.size(),
          " bytes is of an unknown kind; expected a PNG, JPEG, SVG or HTML file");
  return figure;
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
  return Json(Json::Members{{"columns", json_of(columns, "columns")}, {"rows", json_of(rows, "rows")}});
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
    start.configuration = json_of(configuration, "");
    start.options = json_of(kwargs, "");
    start.settings = read_settings(options, "options");
    if (start.settings.logging_dir.value.empty())
      start.settings.logging_dir = accelerator.project().settings().logging_dir.value;
    if (start.settings.logging_dir.value.empty())
      start.settings.logging_dir = accelerator.project().settings().project_dir.value;
    start.version = text(ACCEL_VERSION_MAJOR, ".", ACCEL_VERSION_MINOR, ".", ACCEL_VERSION_PATCH);
    start.rank = accelerator.state().process_index();
    start.world_size = accelerator.state().num_processes();
    track::Trackers& trackers = accelerator.trackers();
    trackers.start(start);
    c10::IValue content;
    try {
      trackers.tell(TrackerEvent::kStart, track::kNoStep, [&](const track::ApplicationTracker& tracker) {
        content = start_content(trackers.run(), member_or_empty(kwargs, tracker.name()));
        return &content;
      });
      if (!configuration.isNone())
        tell(trackers, TrackerEvent::kConfiguration, track::kNoStep, [&] { return configuration; });
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
    accelerator::note_log(*accelerator_of(state), trackers.step_report_interval());
  });
}

ACCEL_FUNCTION accel_status_t accel_log_scalars(accel_state_t* state, const char* const* names, const double* values,
                                                size_t n_values, int64_t step) {
  return guarded(__func__, [&] {
    track::Trackers& trackers = trackers_of(state);
    check_pointer(names, "names");
    check_pointer(values, "values");
    for (size_t i = 0; i < n_values; i++) check_text(check_pointer(names[i], "names[i]"), "names");
    log_and_tell(
        [&] {
          trackers.log(step, [&](Record& record) {
            for (size_t i = 0; i < n_values; i++) record.add_number(names[i], values[i]);
          });
        },
        [&] {
          tell(trackers, TrackerEvent::kValues, step, [&] {
            auto map = tree::new_map();
            for (size_t i = 0; i < n_values; i++) map.insert_or_assign(std::string(names[i]), values[i]);
            return values_content(map, tree::new_map());
          });
        });
    accelerator::note_log(*accelerator_of(state), trackers.step_report_interval());
  });
}

ACCEL_FUNCTION accel_status_t accel_log_images(accel_state_t* state, const accel_value_t* images,
                                               int32_t channels_first, int64_t step) {
  return guarded(__func__, [&] {
    track::Trackers& trackers = trackers_of(state);
    const c10::IValue map = read_map(images, "images");
    const bool first = read_flag(channels_first, "channels_first");
    log_and_tell(
        [&] {
          if (!trackers.has_built_in()) return;
          trackers.log(step, [&](Record& record) {
            record.kind = Record::Kind::kImages;
            for (const auto& member : map.toGenericDict())
              add_images(record, key_text(member.key()), member.value(), first);
          });
        },
        [&] {
          tell(trackers, TrackerEvent::kImages, step, [&] {
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
    log_and_tell(
        [&] {
          trackers.log(step, [&](Record& record) {
            record.kind = Record::Kind::kTable;
            record.name = name;
            record.document = table_document(heads, lines);
            record.count_bytes(print_json(record.document).size());
          });
        },
        [&] {
          tell(trackers, TrackerEvent::kTable, step, [&] {
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
    const std::string_view content(static_cast<const char*>(check_pointer(bytes, "bytes")), n_bytes);
    log_and_tell(
        [&] {
          trackers.log(step, [&](Record& record) {
            record.kind = Record::Kind::kFigure;
            record.pictures.push_back(figure_of(name, content));
          });
        },
        [&] {
          tell(trackers, TrackerEvent::kFigure, step, [&] {
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
    log_and_tell(
        [&] {
          trackers.log(track::kNoStep, [&](Record& record) {
            record.kind = Record::Kind::kArtifact;
            record.path = trimmed;
            record.name = name != nullptr ? name : trimmed.substr(trimmed.find_last_of('/') + 1);
          });
        },
        [&] {
          tell(trackers, TrackerEvent::kArtifact, track::kNoStep, [&] {
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
    auto added = std::dynamic_pointer_cast<track::ApplicationTracker>(check(tracker, "tracker").tracker);
    require(added != nullptr, Status::kInvalidArgument, "tracker '", accel_tracker_name(tracker),
            "' is none of the program; expected one of accel_tracker_create()");
    trackers.add(std::move(added));
  });
}

ACCEL_FUNCTION const char* accel_tracker_name(const accel_tracker_t* tracker) {
  return guarded_value<const char*>(__func__, nullptr,
                                    [&] { return check(tracker, "tracker").tracker->name().c_str(); });
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
