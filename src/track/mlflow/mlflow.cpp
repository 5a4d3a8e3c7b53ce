// SPDX-License-Identifier: Apache-2.0
#include "track/mlflow/mlflow.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "os/list_folder.hpp"
#include "track/run_folder.hpp"

namespace accel::track {
namespace {

// The limits of a request, from the documentation of MLflow's REST API.
constexpr size_t kMostMetrics = 1000, kMostParameters = 100, kLongestParameter = 6000, kLongestMetricName = 250;
constexpr int kTries = 3;  // of a start and an end
constexpr std::chrono::milliseconds kPause(500);

// MLflow takes letters, digits, and _ - . space : / in names, and no path that leaves its folder.
std::string mlflow_name(std::string_view given) {
  std::string name;
  std::string part;
  const auto end_part = [&] {
    if (part.find_first_not_of('.') == std::string::npos) part.assign(std::max<size_t>(part.size(), 1), '_');
    name += part;
    part.clear();
  };
  for (const char byte : given.substr(0, kLongestMetricName)) {
    const bool is_plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                          (byte >= 'A' && byte <= 'Z') ||
                          (byte != '\0' && std::string_view("_-. :").find(byte) != std::string_view::npos);
    if (byte == '/') {
      end_part();
      name += '/';
    } else {
      part += is_plain ? byte : '_';
    }
  }
  end_part();
  return name;
}

std::string user_name() {
  struct passwd entry {};
  struct passwd* found = nullptr;
  std::array<char, 4096> memory{};
  ::getpwuid_r(::getuid(), &entry, memory.data(), memory.size(), &found);
  return found == nullptr ? "unknown" : found->pw_name;
}

std::string chosen(const char* variable, const Json& options, const char* key, const std::string& otherwise) {
  return environment_text(variable).value_or(json_text(options, key, otherwise));
}

std::string tracking_uri(const Json& options, const std::string& logging_dir) {
  const std::string given = json_text(options, "tracking_uri", environment_text("MLFLOW_TRACKING_URI").value_or(""));
  if (!given.empty()) return given;
  return logging_dir.empty() ? "mlruns" : logging_dir + "/mlruns";
}

MlflowTexts tags_of(const Json& options) {
  const auto variable = environment_text("MLFLOW_TAGS");
  const Json* const given = json_member(options, "tags");
  Json tags = given == nullptr ? Json() : *given;
  if (variable) tags = parse_json(*variable, "MLFLOW_TAGS");
  if (tags.text() != nullptr) tags = parse_json(*tags.text(), "tags");
  if (tags.is_null()) return {};
  require(tags.members() != nullptr, Status::kTypeMismatch, "tags of tracker 'mlflow' are ", print_json(tags),
          "; expected a map");
  MlflowTexts result;
  for (const auto& [key, value] : *tags.members())
    result.emplace_back(mlflow_name(key), value.text() != nullptr ? *value.text() : print_json(value));
  return result;
}

}  // namespace

void Mlflow::add_parameters(const Json& value, const std::string& name) {
  if (value.members() != nullptr) {
    for (const auto& [key, member] : *value.members()) add_parameters(member, name.empty() ? key : name + "/" + key);
    return;
  }
  std::string shown = value.text() != nullptr ? *value.text() : print_json(value);
  if (shown.size() > kLongestParameter) {
    log(LogLevel::kWarning, "the value of '", name, "' in the configuration has ", shown.size(),
        " characters; MLflow takes ", kLongestParameter, ", so it is left out there");
    return;
  }
  pending_bytes_ += name.size() + shown.size();
  parameters_.emplace_back(mlflow_name(name), std::move(shown));
}

void Mlflow::add_bytes(std::string bytes, std::string name) {
  pending_bytes_ += bytes.size();
  artifacts_.push_back({std::move(name), std::move(bytes), ""});
}

void Mlflow::add_artifact_files(const std::string& path, const std::string& name) {
  if (!is_folder(path)) {
    artifacts_.push_back({name, "", path});
    return;
  }
  for (const std::string& each : list_folder(path))
    if (each != "mlruns") add_artifact_files(path + "/" + each, name + "/" + file_name_of(each));
}

void Mlflow::write(const Record& record) {
  const std::string step = record.step == kNoStep ? "" : text("_", record.step);
  switch (record.kind) {
    case Record::Kind::kValues: {
      const int64_t number = record.step == kNoStep ? n_without_step_++ : record.step;
      for (size_t i = 0; i < record.size(); i++) {
        const Record::Value value = record.value(i);
        // Only numbers are metrics, as in Accelerate.
        if (value.kind != Record::ValueKind::kNumber && value.kind != Record::ValueKind::kInteger) continue;
        metrics_.push_back({mlflow_name(value.name), value.number, static_cast<int64_t>(record.time * 1000), number});
        pending_bytes_ += sizeof(MlflowMetric) + value.name.size();
      }
      return;
    }
    case Record::Kind::kConfiguration:
      return add_parameters(record.document, "");
    case Record::Kind::kImages:
    case Record::Kind::kFigure:
      for (const Picture& picture : record.pictures)
        add_bytes(picture.bytes, (record.kind == Record::Kind::kImages ? "images/" : "figures/") +
                                     file_name_of(picture.name) + step + "." + picture.format);
      return;
    case Record::Kind::kTable:
      return add_bytes(print_json(record.document), "tables/" + file_name_of(record.name) + step + ".json");
    case Record::Kind::kArtifact:
      return add_artifact_files(record.path, file_name_of(record.name));
    case Record::Kind::kStepReport:
      return;
  }
}

void Mlflow::log_batches() {
  while (!metrics_.empty() || !parameters_.empty()) {
    const size_t n_metrics = std::min(metrics_.size(), kMostMetrics - kMostParameters);
    const size_t n_parameters = std::min(parameters_.size(), kMostParameters);
    const auto metrics_end = metrics_.begin() + static_cast<std::ptrdiff_t>(n_metrics);
    const auto parameters_end = parameters_.begin() + static_cast<std::ptrdiff_t>(n_parameters);
    const auto forget = [&] {
      metrics_.erase(metrics_.begin(), metrics_end);
      parameters_.erase(parameters_.begin(), parameters_end);
    };
    try {
      store_->log({metrics_.begin(), metrics_end}, {parameters_.begin(), parameters_end});
    } catch (const Error& error) {
      if (error.status() != Status::kIo) forget();  // it would be refused for ever
      throw;
    }
    forget();
  }
}

void Mlflow::flush(bool /*durable*/) {
  for (int tried = 1;; tried++) {
    try {
      return write_all();
    } catch (const Error& error) {  // before the end the thread tries again by itself
      if (!has_ended_ || tried == kTries || error.status() != Status::kIo) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
}

void Mlflow::write_all() {
  log_batches();
  while (!artifacts_.empty()) {
    const Artifact artifact = std::move(artifacts_.front());
    artifacts_.pop_front();
    try {
      require(artifact.copied_from.empty() || ::access(artifact.copied_from.c_str(), R_OK) == 0, Status::kNotFound,
              "the artifact '", artifact.copied_from, "' is gone; expected it until accel_flush_trackers()");
      if (artifact.copied_from.empty())
        store_->log_artifact_bytes(artifact.bytes, artifact.name);
      else
        store_->log_artifact(artifact.copied_from, artifact.name);
    } catch (const Error& error) {
      if (error.status() == Status::kIo) artifacts_.push_front(artifact);
      throw;
    }
  }
  pending_bytes_ = 0;
  if (has_ended_) store_->end();
}

void Mlflow::end(bool /*finished*/) { has_ended_ = true; }

bool is_mlflow_remote(const Json& options) { return is_mlflow_server(tracking_uri(options, "")); }

std::unique_ptr<RecordSink> make_mlflow(const Run& run, const Json& options) {
  MlflowRunSettings settings;
  settings.tracking_uri = tracking_uri(options, run.logging_dir);
  settings.experiment = chosen("MLFLOW_EXPERIMENT_NAME", options, "experiment_name", run.project);
  settings.artifact_location = json_text(options, "logging_dir", "");
  settings.run_id = chosen("MLFLOW_RUN_ID", options, "run_id", "");
  settings.run_name = json_text(options, "run_name", run.name);
  settings.user = user_name();
  settings.tags = tags_of(options);
  settings.tags.emplace_back("mlflow.runName", settings.run_name);
  settings.tags.emplace_back("mlflow.user", settings.user);
  if (const std::string description = json_text(options, "description", ""); !description.empty())
    settings.tags.emplace_back("mlflow.note.content", description);
  const size_t scheme = settings.tracking_uri.find("://");
  if (!is_mlflow_server(settings.tracking_uri)) {
    require(scheme == std::string::npos || settings.tracking_uri.rfind("file://", 0) == 0, Status::kInvalidArgument,
            "the tracking URI of MLflow is '", settings.tracking_uri,
            "'; expected http://, https://, file:// or a folder");
    return std::make_unique<Mlflow>(open_mlflow_folder(settings));
  }
  std::string why;
  for (int tried = 1;; tried++) {
    try {
      std::unique_ptr<MlflowStore> store = open_mlflow_server(settings, why);
      if (store != nullptr) return std::make_unique<Mlflow>(std::move(store));
      break;
    } catch (const Error& error) {
      if (error.status() != Status::kIo) throw;
      why = error.message();
      if (tried == kTries) break;
    }
    std::this_thread::sleep_for(kPause);
  }
  log(LogLevel::kWarning, "tracker 'mlflow' is left out: ", why);
  return nullptr;
}

}  // namespace accel::track
