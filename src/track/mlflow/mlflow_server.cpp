// SPDX-License-Identifier: Apache-2.0
// A run of an MLflow tracking server, through its REST interface.
#include <cmath>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/number_text.hpp"
#include "http/http_client.hpp"
#include "os/file_bytes.hpp"
#include "track/mlflow/mlflow_store.hpp"
#include "track/record.hpp"
#include "track/run_folder.hpp"

namespace accel::track {
namespace {

constexpr std::chrono::seconds kTimeout(15), kUploadTimeout(120);
constexpr std::string_view kProxied = "mlflow-artifacts:/";  // artifacts that the server takes

Json::Members member(const char* key, const std::string& value) { return {{key, Json(value)}}; }

Json key_values(const MlflowTexts& texts) {
  Json::Items items;
  for (const auto& [key, value] : texts) items.emplace_back(Json::Members{{"key", Json(key)}, {"value", Json(value)}});
  return Json(std::move(items));
}

// Without what stands before the host and is secret.
std::string without_credentials(const std::string& uri) {
  const size_t host = uri.find("://") + 3, at = uri.find('@'), slash = uri.find('/', host);
  return at == std::string::npos || at > slash ? uri : uri.substr(0, host) + uri.substr(at + 1);
}

class MlflowServer final : public MlflowStore {
 public:
  MlflowServer(std::unique_ptr<HttpClient> client, const MlflowRunSettings& settings)
      : client_(std::move(client)), uri_(without_credentials(settings.tracking_uri)) {
    while (uri_.back() == '/') uri_.pop_back();
    authorize(settings.tracking_uri);
    if (settings.run_id.empty())
      begin_run(settings);
    else
      go_on(settings);
  }

  std::string location() const override { return uri_ + "/#/experiments/" + experiment_ + "/runs/" + run_id_; }

  void log(const std::vector<MlflowMetric>& metrics, const MlflowTexts& parameters) override {
    Json::Items items;
    for (const MlflowMetric& metric : metrics)
      items.emplace_back(Json::Members{
          {"key", Json(metric.key)},
          {"value", std::isfinite(metric.value) ? Json::number(metric.value) : Json(nonfinite_word(metric.value))},
          {"timestamp", Json::number(metric.timestamp)},
          {"step", Json::number(metric.step)}});
    Json::Members batch = member("run_id", run_id_);
    batch.emplace_back("metrics", Json(std::move(items)));
    batch.emplace_back("params", key_values(parameters));
    call("POST", "runs/log-batch", Json(std::move(batch)));
  }

  void log_artifact(const std::string& path, const std::string& name) override {
    const FileBytes file(path);
    put(file.text(), name);
  }
  void log_artifact_bytes(const std::string& bytes, const std::string& name) override { put(bytes, name); }

  void end() override {
    Json::Members update = member("run_id", run_id_);
    update.emplace_back("status", Json("FINISHED"));
    update.emplace_back("end_time", Json::number(static_cast<int64_t>(present_time() * 1000)));
    call("POST", "runs/update", Json(std::move(update)));
  }

 private:
  void authorize(const std::string& given) {
    const size_t host = given.find("://") + 3;
    if (const auto token = environment_text("MLFLOW_TRACKING_TOKEN")) {
      require(token->find_first_of("\r\n") == std::string::npos, Status::kInvalidArgument,
              "environment variable MLFLOW_TRACKING_TOKEN has a line break");
      client_->set_headers({"Authorization: Bearer " + *token});
    } else if (const auto user = environment_text("MLFLOW_TRACKING_USERNAME")) {
      client_->set_credentials(*user, environment_text("MLFLOW_TRACKING_PASSWORD").value_or(""));
    } else if (given != without_credentials(given)) {
      const std::string both = given.substr(host, given.find('@') - host);
      const size_t colon = both.find(':');
      client_->set_credentials(both.substr(0, colon), colon == std::string::npos ? "" : both.substr(colon + 1));
    }
  }

  // A request that a server refuses would be refused again: only failures that may pass are kIo.
  HttpResponse answered(const char* method, const std::string& url, std::string_view body, const char* type,
                        std::chrono::milliseconds timeout) {
    HttpResponse response = client_->request(method, url, body, type, timeout);
    const bool may_work_later = response.status >= 500 || response.status == 429 || response.status == 408;
    require(!may_work_later, Status::kIo, "'", url.substr(0, url.find('?')), "' answered ", response.status);
    return response;
  }

  [[noreturn]] static void refused(const std::string& url, const HttpResponse& response) {
    std::string said = response.body.substr(0, 300);
    for (char& byte : said)
      if (static_cast<unsigned char>(byte) < 0x20) byte = ' ';
    fail(Status::kInvalidArgument, "'", url, "' answered ", response.status, ": ", said);
  }

  std::string address(const std::string& path) const { return uri_ + "/api/2.0/mlflow/" + path; }

  Json call(const char* method, const std::string& path, const Json& content = {}) {
    const std::string body = content.is_null() ? "" : print_json(content);
    const HttpResponse response = answered(method, address(path), body, "application/json", kTimeout);
    if (response.status != 200) refused(address(path), response);
    return parse_json(response.body, address(path));
  }

  std::string find_experiment(const std::string& name) {
    const std::string url = address("experiments/get-by-name") + "?experiment_name=" + percent_encoded(name, false);
    const HttpResponse response = answered("GET", url, "", "", kTimeout);
    if (response.status == 404) return "";
    if (response.status != 200) refused(address("experiments/get-by-name"), response);
    const Json answer = parse_json(response.body, url);
    const Json* const experiment = json_member(answer, "experiment");
    return experiment == nullptr ? "" : json_text(*experiment, "experiment_id", "");
  }

  void begin_run(const MlflowRunSettings& settings) {
    experiment_ = find_experiment(settings.experiment);
    if (experiment_.empty()) {
      Json::Members made = member("name", settings.experiment);
      if (!settings.artifact_location.empty()) made.emplace_back("artifact_location", Json(settings.artifact_location));
      if (!settings.tags.empty()) made.emplace_back("tags", key_values(settings.tags));
      experiment_ = json_text(call("POST", "experiments/create", Json(std::move(made))), "experiment_id", "");
    }
    Json::Members run = member("experiment_id", experiment_);
    run.emplace_back("start_time", Json::number(static_cast<int64_t>(present_time() * 1000)));
    run.emplace_back("run_name", Json(settings.run_name));
    run.emplace_back("user_id", Json(settings.user));
    run.emplace_back("tags", key_values(settings.tags));
    read_run(call("POST", "runs/create", Json(std::move(run))));
  }

  void go_on(const MlflowRunSettings& settings) {
    read_run(call("GET", "runs/get?run_id=" + percent_encoded(settings.run_id, false)));
    Json::Members update = member("run_id", run_id_);
    update.emplace_back("status", Json("RUNNING"));
    call("POST", "runs/update", Json(std::move(update)));
    Json::Members batch = member("run_id", run_id_);
    batch.emplace_back("tags", key_values(settings.tags));
    if (!settings.tags.empty()) call("POST", "runs/log-batch", Json(std::move(batch)));
  }

  void read_run(const Json& answer) {
    const Json* const run = json_member(answer, "run");
    const Json* const info = run == nullptr ? nullptr : json_member(*run, "info");
    require(info != nullptr, Status::kIo, "'", uri_, "' does not answer as MLflow does");
    run_id_ = json_text(*info, "run_id", "");
    experiment_ = json_text(*info, "experiment_id", experiment_);
    artifacts_ = json_text(*info, "artifact_uri", "");
  }

  void put(std::string_view bytes, const std::string& name) {
    const std::string path = artifacts_ + "/" + name;
    if (artifacts_.rfind(kProxied, 0) == 0) {
      const size_t begin = path.find_first_not_of('/', kProxied.size());
      const std::string url =
          uri_ + "/api/2.0/mlflow-artifacts/artifacts/" + percent_encoded(path.substr(begin), /*keep_slashes=*/true);
      const HttpResponse response = answered("PUT", url, bytes, "application/octet-stream", kUploadTimeout);
      if (response.status != 200) refused(url, response);
      return;
    }
    const bool is_file = artifacts_.rfind("file://", 0) == 0;
    require(is_file || artifacts_.find("://") == std::string::npos, Status::kUnsupported,
            "artifacts of this run are stored at '", artifacts_,
            "'; expected a server that takes them itself (mlflow server --serve-artifacts), or a folder");
    const std::string file = is_file ? path.substr(7) : path;
    make_folder(file.substr(0, file.find_last_of('/')));
    write_file(file, std::string(bytes));
  }

  std::unique_ptr<HttpClient> client_;
  std::string uri_;
  std::string experiment_;
  std::string run_id_;
  std::string artifacts_;
};

}  // namespace

bool is_mlflow_server(const std::string& tracking_uri) {
  return tracking_uri.rfind("http://", 0) == 0 || tracking_uri.rfind("https://", 0) == 0;
}

std::unique_ptr<MlflowStore> open_mlflow_server(const MlflowRunSettings& settings, std::string& why) {
  std::unique_ptr<HttpClient> client = HttpClient::load(why);
  if (client == nullptr) return nullptr;
  return std::make_unique<MlflowServer>(std::move(client), settings);
}

}  // namespace accel::track
