// SPDX-License-Identifier: Apache-2.0
// The tracker "mlflow": a run of MLflow, with its names, limits and variables.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "track/mlflow/mlflow_store.hpp"
#include "track/record_sink.hpp"

namespace accel::track {

class Mlflow final : public RecordSink {
 public:
  explicit Mlflow(std::unique_ptr<MlflowStore> store) : store_(std::move(store)) {}
  std::string location() const override { return store_->location(); }
  void write(const Record& record) override;
  void flush(bool durable) override;
  size_t pending_bytes() const override { return pending_bytes_; }
  void end(bool finished) override;

 private:
  struct Artifact {
    std::string name;
    std::string bytes;
    std::string copied_from;  // instead of bytes
  };

  void add_parameters(const Json& value, const std::string& name);
  void add_artifact_files(const std::string& path, const std::string& name);
  void add_bytes(std::string bytes, std::string name);
  void write_all();
  void log_batches();

  std::unique_ptr<MlflowStore> store_;
  std::deque<MlflowMetric> metrics_;
  MlflowTexts parameters_;
  std::deque<Artifact> artifacts_;
  size_t pending_bytes_ = 0;
  int64_t n_without_step_ = 0;
  bool has_ended_ = false;
};

// By the options and variables of Accelerate's tracker. Null if there is no libcurl or no answer, of which the log has
// a warning.
std::unique_ptr<RecordSink> make_mlflow(const Run& run, const Json& options);
bool is_mlflow_remote(const Json& options);

}  // namespace accel::track
