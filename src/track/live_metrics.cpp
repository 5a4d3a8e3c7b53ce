// SPDX-License-Identifier: Apache-2.0
#include "track/live_metrics.hpp"

#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "base/text_check.hpp"

namespace accel::track {
namespace {

constexpr std::chrono::seconds kReportAge{1};

// The value of a label: the format escapes these three.
std::string label(std::string_view value) {
  std::string escaped;
  for (const char character : value) {
    if (character == '\\' || character == '"') escaped += '\\';
    if (character == '\n')
      escaped += "\\n";
    else
      escaped += character;
  }
  return escaped;
}

std::string number_text(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "+Inf" : "-Inf";
  char text[64];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

// The samples of one metric stand together, below what they are.
class Family {
 public:
  Family(std::string& out, const char* name, const char* type, const char* help) : out_(out), name_(name) {
    head_ = std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void add(double number, const std::string& labels) {
    out_ += head_ + name_ + "{" + labels + "} " + number_text(number) + "\n";
    head_.clear();
  }

 private:
  std::string& out_;
  const std::string name_;
  std::string head_;
};

std::string rank_label(int64_t rank) { return accel::text("rank=\"", rank, "\""); }

}  // namespace

bool LiveMetrics::wants_report(Clock::time_point now) {
  if (now < due_) return false;
  due_ = now + kReportAge;
  return true;
}

void LiveMetrics::set_report(const RankOfJob& rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ranks_[rank.rank] = rank.report;
}

void LiveMetrics::set_report(const JobReport& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const RankOfJob& rank : job.ranks) ranks_[rank.rank] = rank.report;
  slowest_rank_ = job.slowest_rank;
  slowdown_ = job.slowdown;
}

std::string LiveMetrics::text() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string out;
  Family steps(out, "accel_steps_total", "counter", "Training steps since the last reset of the step report.");
  for (const auto& [rank, report] : ranks_) steps.add(static_cast<double>(report.times.steps), rank_label(rank));
  Family seconds(out, "accel_step_seconds", "gauge", "Mean seconds of a training step, by what they were spent for.");
  for (const auto& [rank, report] : ranks_)
    for (size_t part = 0; part < kStepParts; part++)
      seconds.add(report.times.mean[part],
                  accel::text("part=\"", step_part_name(static_cast<StepPart>(part)), "\",", rank_label(rank)));
  Family memory(out, "accel_memory_bytes", "gauge", "Memory of the process and of its device.");
  for (const auto& [rank, report] : ranks_) {
    const auto add = [&memory, rank = rank](const char* kind, int64_t bytes) {
      memory.add(static_cast<double>(bytes), accel::text("kind=\"", kind, "\",", rank_label(rank)));
    };
    add("resident", report.process.resident);
    add("most_resident", report.process.most_resident);
    add("cpu_in_use", report.cpu_in_use);
    add("device_in_use", report.device_in_use);
    add("device_most_in_use", report.device_most_in_use);
  }
  Family tokens(out, "accel_tokens_per_second", "gauge", "Tokens that are trained with in a second.");
  for (const auto& [rank, report] : ranks_)
    if (report.throughput.tokens_per_second) tokens.add(*report.throughput.tokens_per_second, rank_label(rank));
  Family utilization(out, "accel_model_flops_utilization", "gauge", "Part of the device's peak that the model needs.");
  for (const auto& [rank, report] : ranks_)
    if (report.throughput.model_flops_utilization)
      utilization.add(*report.throughput.model_flops_utilization, rank_label(rank));
  Family slowdown(out, "accel_slowdown", "gauge", "Computing time of the slowest rank by the median of all.");
  if (slowest_rank_ && slowdown_) slowdown.add(*slowdown_, rank_label(*slowest_rank_));
  Family scalars(out, "accel_scalar", "gauge", "The latest value that was logged.");
  for (const auto& [name, value] : scalars_())
    scalars.add(value, accel::text("name=\"", label(name), "\",", rank_label(rank_)));
  return out;
}

}  // namespace accel::track
