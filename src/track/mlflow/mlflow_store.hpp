// SPDX-License-Identifier: Apache-2.0
// Where a run of MLflow is stored: a server, or a folder in the form of MLflow's file store.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "json/json.hpp"

namespace accel::track {

struct MlflowMetric {
  std::string key;
  double value;
  int64_t timestamp;  // ms since 1970
  int64_t step;
};

using MlflowTexts = std::vector<std::pair<std::string, std::string>>;  // parameters or tags

struct MlflowRunSettings {
  std::string tracking_uri;
  std::string experiment;
  std::string artifact_location;  // of an experiment that is made; empty: the store's
  std::string run_id;             // of a run that goes on; empty: a new one
  std::string run_name;
  std::string user;
  MlflowTexts tags;
};

// All throw kIo for what may work later, and other errors for what never will.
class MlflowStore {
 public:
  virtual ~MlflowStore() = default;
  virtual std::string location() const = 0;
  // Any number of metrics and texts is logged: the caller knows the limits of a server.
  virtual void log(const std::vector<MlflowMetric>& metrics, const MlflowTexts& parameters) = 0;
  virtual void log_artifact(const std::string& path, const std::string& name) = 0;  // a file
  virtual void log_artifact_bytes(const std::string& bytes, const std::string& name) = 0;
  virtual void end() = 0;
};

bool is_mlflow_server(const std::string& tracking_uri);
// Each starts the run, or goes on with it.
std::unique_ptr<MlflowStore> open_mlflow_folder(const MlflowRunSettings& settings);
// Null without libcurl; `why` then tells.
std::unique_ptr<MlflowStore> open_mlflow_server(const MlflowRunSettings& settings, std::string& why);

}  // namespace accel::track
