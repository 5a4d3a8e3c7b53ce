// SPDX-License-Identifier: Apache-2.0
#include "track/step_report.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace accel::track {
namespace {

double total_of(const StepTimes::Seconds& seconds) { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

Json optional_json(const std::optional<double>& number) { return number ? Json::number(*number) : Json(); }

Json seconds_json(const StepTimes::Seconds& seconds) {
  Json::Members members;
  for (size_t part = 0; part < kStepParts; part++)
    members.emplace_back(step_part_name(static_cast<StepPart>(part)), Json::number(seconds[part]));
  members.emplace_back("total", Json::number(total_of(seconds)));
  return Json(std::move(members));
}

// The bytes of a report, and their names.
template <typename Report, typename Visit>
void for_each_memory(Report& report, const Visit& visit) {
  visit("resident", report.process.resident);
  visit("most_resident", report.process.most_resident);
  visit("cpu_in_use", report.cpu_in_use);
  visit("cpu_most_in_use", report.cpu_most_in_use);
  visit("device_in_use", report.device_in_use);
  visit("device_most_in_use", report.device_most_in_use);
}

Json memory_json(const RankReport& report) {
  Json::Members members;
  for_each_memory(report, [&](const char* name, int64_t bytes) { members.emplace_back(name, Json::number(bytes)); });
  return Json(std::move(members));
}

void add_throughput(Json::Members& members, const Throughput::Report& throughput) {
  members.emplace_back("tokens_per_second", optional_json(throughput.tokens_per_second));
  members.emplace_back("model_flops_utilization", optional_json(throughput.model_flops_utilization));
}

const Json& member_of(const Json& object, const char* key) {
  const Json* const found = object.members() == nullptr ? nullptr : json_member(object, key);
  require(found != nullptr, Status::kTypeMismatch, "report has no \"", key,
          "\"; expected what accel_step_report() or accel_step_report_of_ranks() returned");
  return *found;
}

double number_of(const Json& object, const char* key) {
  const auto number = member_of(object, key).number();
  require(number.has_value(), Status::kTypeMismatch, "\"", key, "\" of the report is not a number");
  return *number;
}

int64_t integer_of(const Json& object, const char* key) {
  const auto integer = member_of(object, key).integer();
  require(integer.has_value(), Status::kTypeMismatch, "\"", key, "\" of the report is not an integer");
  return *integer;
}

// A member that may be missing is null.
std::optional<double> optional_number_of(const Json& object, const char* key) {
  const Json* const found = json_member(object, key);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return number_of(object, key);
}

StepTimes::Seconds seconds_of(const Json& object) {
  StepTimes::Seconds seconds{};
  for (size_t part = 0; part < kStepParts; part++)
    seconds[part] = number_of(object, step_part_name(static_cast<StepPart>(part)));
  return seconds;
}

std::string fixed(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string table_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (size_t column = 0; column < row.size(); column++)
      widths[column] = std::max(widths[column], row[column].size());
  std::string table;
  for (const auto& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); column++)
      line += (column == 0 ? "" : "  ") + std::string(widths[column] - row[column].size(), ' ') + row[column];
    table += line + "\n";
  }
  return table;
}

}  // namespace

double RankReport::computing() const {
  return total_of(times.mean) - times.mean[static_cast<size_t>(StepPart::kCommunication)];
}

Json to_json(const RankReport& report) {
  Json::Members members;
  members.emplace_back("steps", Json::number(report.times.steps));
  members.emplace_back("latest", seconds_json(report.times.latest));
  members.emplace_back("mean", seconds_json(report.times.mean));
  members.emplace_back("memory", memory_json(report));
  add_throughput(members, report.throughput);
  return Json(std::move(members));
}

RankReport rank_report(const Json& report) {
  RankReport result;
  result.times.steps = integer_of(report, "steps");
  result.times.latest = seconds_of(member_of(report, "latest"));
  result.times.mean = seconds_of(member_of(report, "mean"));
  const Json& memory = member_of(report, "memory");
  for_each_memory(result, [&](const char* name, int64_t& bytes) { bytes = integer_of(memory, name); });
  result.throughput.tokens_per_second = optional_number_of(report, "tokens_per_second");
  result.throughput.model_flops_utilization = optional_number_of(report, "model_flops_utilization");
  return result;
}

Json to_json(const RankOfJob& rank) {
  Json::Members members;
  members.emplace_back("rank", Json::number(rank.rank));
  members.emplace_back("host", Json(rank.host));
  const Json report = to_json(rank.report);
  for (const auto& member : *report.members()) members.push_back(member);
  return Json(std::move(members));
}

RankOfJob rank_of_job(const Json& rank) {
  const std::string* const host = member_of(rank, "host").text();
  require(host != nullptr, Status::kTypeMismatch, "\"host\" of the report is not text");
  return {integer_of(rank, "rank"), *host, rank_report(rank)};
}

JobReport::JobReport(std::vector<RankOfJob> all) : ranks(std::move(all)) {
  std::vector<double> computing;
  const bool has_steps =
      std::all_of(ranks.begin(), ranks.end(), [](const RankOfJob& rank) { return rank.report.times.steps > 0; });
  for (const RankOfJob& rank : ranks) {
    computing.push_back(rank.report.computing());
    if (rank.report.throughput.tokens_per_second)
      tokens_per_second = tokens_per_second.value_or(0) + *rank.report.throughput.tokens_per_second;
  }
  if (ranks.size() < 2 || !has_steps) return;
  const auto slowest = std::max_element(computing.begin(), computing.end());
  slowest_rank = ranks[static_cast<size_t>(slowest - computing.begin())].rank;
  const double longest = *slowest;
  const auto middle = computing.begin() + static_cast<std::ptrdiff_t>((computing.size() - 1) / 2);
  std::nth_element(computing.begin(), middle, computing.end());
  if (*middle > 0) slowdown = longest / *middle;
}

Json to_json(const JobReport& report) {
  Json::Items ranks;
  for (const RankOfJob& rank : report.ranks) ranks.push_back(to_json(rank));
  Json::Members members;
  members.emplace_back("ranks", Json(std::move(ranks)));
  members.emplace_back("slowest_rank", report.slowest_rank ? Json::number(*report.slowest_rank) : Json());
  members.emplace_back("slowdown", optional_json(report.slowdown));
  members.emplace_back("tokens_per_second", optional_json(report.tokens_per_second));
  return Json(std::move(members));
}

Json tracked_report(const JobReport& report) {
  Json::Items ranks;
  for (const RankOfJob& rank : report.ranks) {
    Json::Members members;
    members.emplace_back("rank", Json::number(rank.rank));
    members.emplace_back("host", Json(rank.host));
    members.emplace_back("seconds", seconds_json(rank.report.times.mean));
    members.emplace_back("memory", memory_json(rank.report));
    add_throughput(members, rank.report.throughput);
    ranks.emplace_back(std::move(members));
  }
  Json::Members members;
  members.emplace_back("ranks", Json(std::move(ranks)));
  members.emplace_back("slowest_rank", report.slowest_rank ? Json::number(*report.slowest_rank) : Json());
  return Json(std::move(members));
}

// Milliseconds of a step, and what they are of all in percent.
std::string step_report_table(const Json& report) {
  const Json* const of_job = report.members() == nullptr ? nullptr : json_member(report, "ranks");
  std::vector<RankOfJob> ranks;
  if (of_job == nullptr) {
    ranks.push_back({0, "", rank_report(report)});
  } else {
    require(of_job->items() != nullptr, Status::kTypeMismatch, "\"ranks\" of the report is not a list");
    for (const Json& rank : *of_job->items()) ranks.push_back(rank_of_job(rank));
  }
  std::vector<std::string> header;
  if (of_job != nullptr) header = {"rank", "host"};
  for (const char* name : {"steps", "ms"}) header.emplace_back(name);
  for (size_t part = 0; part < kStepParts; part++)
    header.push_back(text(step_part_name(static_cast<StepPart>(part)), " %"));
  for (const char* name : {"memory MB", "device MB", "tokens/s", "MFU %"}) header.emplace_back(name);
  std::vector<std::vector<std::string>> rows = {header};
  for (const RankOfJob& rank : ranks) {
    const RankReport& of_rank = rank.report;
    const double total = total_of(of_rank.times.mean);
    std::vector<std::string> row;
    if (of_job != nullptr) row = {std::to_string(rank.rank), rank.host};
    row.push_back(std::to_string(of_rank.times.steps));
    row.push_back(fixed(total * 1e3, 2));
    for (const double part : of_rank.times.mean) row.push_back(total > 0 ? fixed(100 * part / total, 1) : "-");
    row.push_back(fixed(static_cast<double>(of_rank.process.resident) * 1e-6, 0));
    row.push_back(fixed(static_cast<double>(of_rank.device_in_use) * 1e-6, 0));
    const auto& [tokens, utilization] = of_rank.throughput;
    row.push_back(tokens ? fixed(*tokens, 0) : "-");
    row.push_back(utilization ? fixed(100 * *utilization, 1) : "-");
    rows.push_back(std::move(row));
  }
  std::string table = table_of(rows);
  if (of_job == nullptr) return table;
  const JobReport job(std::move(ranks));
  if (job.slowest_rank && job.slowdown)
    table += text("rank ", *job.slowest_rank, " is the slowest: it computes ", fixed(*job.slowdown, 2),
                  " times as long as the median\n");
  return table;
}

}  // namespace accel::track
