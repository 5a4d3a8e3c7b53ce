// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/max_memory.hpp"

#include <c10/core/Device.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <tuple>

#include "base/error.hpp"
#include "base/log.hpp"
#include "bigmodel/device_map/device_map.hpp"
#include "machine/host_memory.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_work.hpp"

namespace accel::bigmodel {
namespace {

std::tuple<int, int64_t, std::string> order_of(const std::string& place) {
  if (place == "disk") return {3, 0, ""};
  if (place == "cpu") return {2, 0, ""};
  if (is_accelerator_number(place)) return {0, std::stoll(place), ""};
  return {1, 0, place};
}

// The free memory of a device; nothing, with a line in the log, for one that is not usable or does not tell.
std::optional<int64_t> free_memory(c10::Device device) {
  try {
    const auto free = tensor::device_memory(device).free;
    if (!free) log(LogLevel::kInfo, device.str(), " does not tell its free memory and is left out; give max_memory");
    return free;
  } catch (const Error& error) {
    log(LogLevel::kInfo, device.str(), " is left out: ", error.message());
    return std::nullopt;
  }
}

}  // namespace

bool is_accelerator(const std::string& place) { return place != "cpu" && place != "disk"; }

std::string text_of_bytes(double bytes) {
  std::ostringstream stream;
  stream.precision(std::numeric_limits<double>::max_digits10);
  stream << bytes;
  return stream.str();
}

MaxMemory available_memory() {
  MaxMemory memory;
  const auto accelerator = tensor::default_accelerator();
  const auto kind = accelerator ? tensor::device_kind(*accelerator) : tensor::DeviceKind::kCpu;
  const auto of_host = static_cast<double>(available_host_memory());
  if (kind == tensor::DeviceKind::kMps) return {{tensor::device_kind_name(kind), of_host}};
  const int64_t count = accelerator ? tensor::device_count(kind) : 0;
  for (int64_t i = 0; i < count; i++)
    if (const auto free = free_memory({accelerator->type(), static_cast<c10::DeviceIndex>(i)}))
      memory.emplace_back(std::to_string(i), static_cast<double>(*free));
  memory.emplace_back("cpu", of_host);
  return memory;
}

MaxMemory ordered_memory(MaxMemory given) {
  std::sort(given.begin(), given.end(),
            [](const auto& one, const auto& other) { return order_of(one.first) < order_of(other.first); });
  const auto accelerator = tensor::default_accelerator();
  const int64_t count = accelerator ? tensor::device_count(tensor::device_kind(*accelerator)) : 0;
  for (size_t i = 0; i < given.size(); i++) {
    const auto& [place, bytes] = given[i];
    check_place(place);
    require(place != "meta", Status::kInvalidArgument, "max_memory has the device 'meta', which keeps nothing");
    require(bytes >= 0, Status::kInvalidArgument, "max_memory of '", place, "' is ", bytes,
            "; expected 0 bytes or more");
    require(i == 0 || given[i - 1].first != place, Status::kInvalidArgument, "max_memory has '", place,
            "' twice; expected each device once");
    if (is_accelerator_number(place) && std::stoll(place) >= count)
      log(LogLevel::kWarning, "accelerator ", place, " of max_memory is not there; this machine has ", count);
  }
  return given;
}

}  // namespace accel::bigmodel
