// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <cstdlib>
#include <limits>
#include <mutex>
#include <stdexcept>

namespace simulated_device {
namespace {

int64_t number_of(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const int64_t number = std::strtoll(text, &end, 10);
  if (*end || number < 0) throw std::invalid_argument(std::string(variable) + " is '" + text + "'; expected a number");
  return number;
}

void check(const simulated_device_settings& settings) {
  if (settings.device_count < 1 || settings.device_count > kMaxDevices)
    throw std::invalid_argument("there are 1 to 8 simulated devices, not " + std::to_string(settings.device_count));
  if (settings.memory_bytes < 0 || settings.memory_bytes > static_cast<int64_t>(kAddressSpace))
    throw std::invalid_argument("a simulated device has 0 to " + std::to_string(kAddressSpace) + " bytes, not " +
                                std::to_string(settings.memory_bytes));
  if (settings.random_delay_us < 0 || settings.copy_delay_us < 0 || settings.operator_delay_us < 0)
    throw std::invalid_argument("a delay of a simulated device is 0 or more microseconds");
}

simulated_device_settings from_environment() {
  simulated_device_settings settings{};
  settings.device_count = static_cast<int32_t>(number_of("SIMULATED_DEVICE_COUNT", 4));
  settings.memory_bytes = number_of("SIMULATED_DEVICE_MEMORY", int64_t{1} << 30);
  settings.seed = static_cast<uint64_t>(number_of("SIMULATED_DEVICE_SEED", 0));
  settings.random_delay_us = number_of("SIMULATED_DEVICE_RANDOM_DELAY_US", 200);
  settings.copy_delay_us = number_of("SIMULATED_DEVICE_COPY_DELAY_US", 0);
  settings.operator_delay_us = number_of("SIMULATED_DEVICE_OPERATOR_DELAY_US", 0);
  settings.pinned_bytes = number_of("SIMULATED_DEVICE_PINNED_BYTES", std::numeric_limits<int64_t>::max());
  check(settings);
  return settings;
}

struct Current {
  std::mutex mutex;
  simulated_device_settings settings = from_environment();
};

Current& current() {
  static Current* const current = new Current;
  return *current;
}

}  // namespace

simulated_device_settings settings() {
  const std::lock_guard<std::mutex> lock(current().mutex);
  return current().settings;
}

void set_settings(const simulated_device_settings& settings) {
  check(settings);
  const std::lock_guard<std::mutex> lock(current().mutex);
  current().settings = settings;
}

std::string device_name_setting() {
  const char* const name = std::getenv("SIMULATED_DEVICE_NAME");
  return name && *name ? name : "sim";
}

}  // namespace simulated_device
