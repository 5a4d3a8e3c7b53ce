// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/host_description.hpp"

#include <chrono>

#include "base/error.hpp"

namespace accel::launch {
namespace {

constexpr int64_t kMostProcesses = 65536;

int bounded(const Json& message, const char* key, int64_t least) {
  const int64_t value = json_integer(message, key, least);
  require(value >= least && value <= kMostProcesses, Status::kInvalidArgument, "'", key, "' is ", value, "; expected ",
          least, " to ", kMostProcesses);
  return static_cast<int>(value);
}

}  // namespace

Json to_json(const HostDescription& host) {
  Json::Members members = {{"type", Json("hello")},
                           {"name", Json(host.name)},
                           {"version", Json(host.version)},
                           {"program", Json(host.program)},
                           {"local_processes", Json::number(int64_t{host.local_processes})},
                           {"num_processes", Json::number(int64_t{host.num_processes})},
                           {"clock_ms", Json::number(host.clock_ms)}};
  if (host.machine_rank) members.emplace_back("machine_rank", Json::number(int64_t{*host.machine_rank}));
  return Json(std::move(members));
}

HostDescription host_description(const Json& message) {
  HostDescription host;
  host.name = json_text(message, "name", "");
  host.version = json_text(message, "version", "");
  host.program = json_text(message, "program", "");
  host.local_processes = bounded(message, "local_processes", 1);
  host.num_processes = bounded(message, "num_processes", 1);
  if (json_member(message, "machine_rank") != nullptr) host.machine_rank = bounded(message, "machine_rank", 0);
  host.clock_ms = json_integer(message, "clock_ms", 0);
  return host;
}

int64_t clock_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string mismatch(const HostDescription& own, const HostDescription& joins) {
  const auto differs = [&](const char* what, const auto& expected, const auto& found) {
    return text(what, " there is ", found, ", that of the coordinator's host ", own.name, " is ", expected,
                "; start the same command on all hosts");
  };
  if (own.version != joins.version) return differs("the version of accel", own.version, joins.version);
  if (own.num_processes != joins.num_processes)
    return differs("the number of processes", own.num_processes, joins.num_processes);
  if (own.program != joins.program) return differs("the program", own.program, joins.program);
  return "";
}

}  // namespace accel::launch
