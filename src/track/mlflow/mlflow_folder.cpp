// SPDX-License-Identifier: Apache-2.0
// MLflow's file store: a folder an experiment, in it a folder a run, in which each metric, parameter and tag is a file.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/number_text.hpp"
#include "config/yaml_document.hpp"
#include "os/list_folder.hpp"
#include "os/replaced_file.hpp"
#include "track/appended_file.hpp"
#include "track/mlflow/mlflow_store.hpp"
#include "track/record.hpp"
#include "track/run_folder.hpp"

namespace accel::track {
namespace {

constexpr int64_t kRunning = 1, kFinished = 3;  // RunStatus
constexpr int64_t kLocalSource = 4;             // SourceType

int64_t present_milliseconds() { return static_cast<int64_t>(present_time() * 1000); }

std::string random_digits(size_t count, const char* digits, unsigned base) {
  std::random_device random;
  std::string text;
  for (size_t i = 0; i < count; i++) text += digits[random() % base];
  return text;
}

std::string folder_of_uri(const std::string& uri) {
  std::string path = uri.rfind("file://", 0) == 0 ? uri.substr(7) : uri.rfind("file:", 0) == 0 ? uri.substr(5) : uri;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (!path.empty() && path[0] == '/') return path;
  std::array<char, 4096> here{};
  require(::getcwd(here.data(), here.size()) != nullptr, Status::kIo, "the path of the working folder cannot be read");
  return text(here.data(), "/", path);
}

class MlflowFolder final : public MlflowStore {
 public:
  explicit MlflowFolder(const MlflowRunSettings& settings) : root_(folder_of_uri(settings.tracking_uri)) {
    if (settings.run_id.empty())
      begin_run(settings);
    else
      go_on(settings);
    for (const auto& [key, value] : settings.tags) write_text("tags", key, value);
  }

  std::string location() const override { return folder_; }

  void log(const std::vector<MlflowMetric>& metrics, const MlflowTexts& parameters) override {
    std::map<std::string, std::string> lines;
    for (const MlflowMetric& metric : metrics) {
      std::string& out = lines[metric.key];
      out += text_of_number(metric.timestamp);
      out += ' ';
      if (std::isfinite(metric.value))
        out += text_of_number(metric.value);
      else
        out += std::isnan(metric.value) ? "nan" : metric.value > 0 ? "inf" : "-inf";  // as Python reads them
      out += ' ';
      out += text_of_number(metric.step);
      out += '\n';
    }
    for (const auto& [key, text] : lines) {
      AppendedFile file(folder_ + "/metrics/" + key);
      file.buffer() = text;
      file.flush(false);
    }
    for (const auto& [key, value] : parameters) write_text("params", key, value);
  }

  void log_artifact(const std::string& path, const std::string& name) override { copy_files(path, new_artifact(name)); }
  void log_artifact_bytes(const std::string& bytes, const std::string& name) override {
    write_file(new_artifact(name), bytes);
  }

  void end() override { write_run(kFinished, present_milliseconds()); }

 private:
  struct Experiment {
    std::string id;
    std::string artifacts;
  };

  static std::string text_member(const YamlNode& map, const char* name) {
    const YamlNode* const found = map.is_map() ? map.find(name) : nullptr;
    return found == nullptr ? "" : found->text;
  }

  std::vector<std::pair<std::string, YamlNode>> experiments() const {
    std::vector<std::pair<std::string, YamlNode>> found;
    if (!is_folder(root_)) return found;
    for (const std::string& id : list_folder(root_))
      if (id[0] != '.' && ::access((root_ + "/" + id + "/meta.yaml").c_str(), R_OK) == 0)
        found.emplace_back(id, read_yaml(root_ + "/" + id + "/meta.yaml"));
    return found;
  }

  Experiment find_or_make_experiment(const MlflowRunSettings& settings) {
    for (const auto& [id, meta] : experiments())
      if (text_member(meta, "name") == settings.experiment) {
        require(text_member(meta, "lifecycle_stage") != "deleted", Status::kInvalidArgument, "the experiment '",
                settings.experiment, "' of MLflow was deleted; restore it, or take another name");
        return {id, text_member(meta, "artifact_location")};
      }
    const std::string id = random_digits(1, "123456789", 9) + random_digits(17, "0123456789", 10);
    const std::string artifacts =
        settings.artifact_location.empty() ? "file://" + root_ + "/" + id : settings.artifact_location;
    make_folder(root_ + "/" + id);
    write_file(root_ + "/" + id + "/meta.yaml",
               text("artifact_location: ", print_json(Json(artifacts)), "\ncreation_time: ", present_milliseconds(),
                    "\nexperiment_id: '", id, "'\nlast_update_time: ", present_milliseconds(),
                    "\nlifecycle_stage: active\nname: ", print_json(Json(settings.experiment)), "\n"));
    return {id, artifacts};
  }

  void begin_run(const MlflowRunSettings& settings) {
    const Experiment experiment = find_or_make_experiment(settings);
    experiment_ = experiment.id;
    run_id_ = random_digits(32, "0123456789abcdef", 16);
    folder_ = root_ + "/" + experiment_ + "/" + run_id_;
    artifacts_ = experiment.artifacts + "/" + run_id_ + "/artifacts";
    name_ = settings.run_name;
    user_ = settings.user;
    start_ = present_milliseconds();
    for (const char* part : {"metrics", "params", "tags", "artifacts"}) make_folder(folder_ + "/" + part);
    write_run(kRunning, 0);
  }

  void go_on(const MlflowRunSettings& settings) {
    run_id_ = settings.run_id;
    require(run_id_.find_first_not_of("0123456789abcdefABCDEF-") == std::string::npos, Status::kInvalidArgument,
            "run_id is '", run_id_, "'; expected that of a run of MLflow");
    for (const auto& [id, meta] : experiments()) {
      folder_ = root_ + "/" + id + "/" + run_id_;
      if (::access((folder_ + "/meta.yaml").c_str(), R_OK) != 0) continue;
      const YamlNode run = read_yaml(folder_ + "/meta.yaml");
      experiment_ = id;
      artifacts_ = text_member(run, "artifact_uri");
      name_ = text_member(run, "run_name");
      user_ = text_member(run, "user_id");
      start_ = std::atoll(text_member(run, "start_time").c_str());
      write_run(kRunning, 0);
      return;
    }
    fail(Status::kNotFound, "there is no run '", run_id_, "' in '", root_, "'");
  }

  void write_run(int64_t status, int64_t end) const {
    const auto quoted = [](const std::string& value) { return print_json(Json(value)); };
    const std::string path = folder_ + "/meta.yaml";
    replace_file(path,
                 text("artifact_uri: ", quoted(artifacts_), "\nend_time: ", end == 0 ? "null" : std::to_string(end),
                      "\nentry_point_name: ''\nexperiment_id: '", experiment_, "'\nlifecycle_stage: active\nrun_id: ",
                      quoted(run_id_), "\nrun_name: ", quoted(name_), "\nrun_uuid: ", quoted(run_id_),
                      "\nsource_name: ''\nsource_type: ", kLocalSource, "\nsource_version: ''\nstart_time: ", start_,
                      "\nstatus: ", status, "\ntags: []\nuser_id: ", quoted(user_), "\n"));
  }

  void write_text(const char* kind, const std::string& key, const std::string& value) const {
    const std::string path = folder_ + "/" + kind + "/" + key;
    make_folder(path.substr(0, path.find_last_of('/')));
    write_file(path, value);
  }

  std::string new_artifact(const std::string& name) const {
    require(artifacts_.find("://") == std::string::npos || artifacts_.rfind("file://", 0) == 0, Status::kUnsupported,
            "artifacts of this run are stored at '", artifacts_, "'; expected a folder");
    const std::string path = folder_of_uri(artifacts_) + "/" + name;
    make_folder(path.substr(0, path.find_last_of('/')));
    return path;
  }

  std::string root_;
  std::string experiment_;
  std::string run_id_;
  std::string folder_;
  std::string artifacts_;
  std::string name_;
  std::string user_;
  int64_t start_ = 0;
};

}  // namespace

std::unique_ptr<MlflowStore> open_mlflow_folder(const MlflowRunSettings& settings) {
  return std::make_unique<MlflowFolder>(settings);
}

}  // namespace accel::track
