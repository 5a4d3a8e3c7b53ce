// SPDX-License-Identifier: Apache-2.0
#include "track/built_in_trackers.hpp"

#include <algorithm>
#include <array>

#include "track/comma_separated.hpp"
#include "track/json_lines.hpp"
#include "track/mlflow/mlflow.hpp"
#include "track/tensorboard.hpp"

namespace accel::track {
namespace {

template <typename Sink>
std::unique_ptr<RecordSink> make_sink(const Run& run, const Json& /*options*/) {
  return std::make_unique<Sink>(run);
}

std::unique_ptr<RecordSink> make_tensorboard(const Run& run, const Json& options) {
  return std::make_unique<Tensorboard>(run, json_text(options, "filename_suffix", ""));
}

bool is_local(const Json& /*options*/) { return false; }

}  // namespace

std::vector<BuiltIn> built_in_trackers() {
  // max_queue and flush_secs of SummaryWriter are accepted: flush_interval_ms and queue_bytes hold for all trackers.
  return {
      {"jsonl", true, {}, make_sink<JsonLines>, is_local},
      {"csv", true, {}, make_sink<CommaSeparated>, is_local},
      {"tensorboard", true, {"filename_suffix", "max_queue", "flush_secs"}, make_tensorboard, is_local},
      {"mlflow",
       false,
       {"tracking_uri", "experiment_name", "logging_dir", "run_id", "tags", "nested_run", "run_name", "description"},
       make_mlflow,
       is_mlflow_remote}};
}

std::vector<std::string> built_in_names() {
  std::vector<std::string> names;
  for (const BuiltIn& each : built_in_trackers()) names.emplace_back(each.name);
  return names;
}

bool is_package_of_python(const std::string& name) {
  constexpr std::array kPackages = {"aim", "clearml", "comet_ml", "dvclive", "swanlab", "trackio", "wandb"};
  return std::find(kPackages.begin(), kPackages.end(), name) != kPackages.end();
}

}  // namespace accel::track
