// SPDX-License-Identifier: Apache-2.0
// The description that a launcher sends when it joins a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "json/json.hpp"

namespace accel::launch {

// The version of the messages between launchers; others are refused.
inline constexpr int kProtocol = 1;

struct HostDescription {
  std::string name;     // of the host
  std::string version;  // of this library
  std::string program;  // the name of what it starts, without its folder
  int local_processes = 1;
  int num_processes = 1;  // of the whole job, as its command line has it
  std::optional<int> machine_rank;
  int64_t clock_ms = 0;
};

Json to_json(const HostDescription& host);
HostDescription host_description(const Json& message);

int64_t clock_ms();

// Why a host with the description `joins` cannot be in the job of `own`; empty if it can.
std::string mismatch(const HostDescription& own, const HostDescription& joins);

}  // namespace accel::launch
