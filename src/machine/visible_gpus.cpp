// SPDX-License-Identifier: Apache-2.0
#include "machine/visible_gpus.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/split_text.hpp"
#include "os/list_folder.hpp"
#include "os/read_line.hpp"

namespace accel::launch {
namespace {

struct Gpu {
  std::string address;
  std::string uuid;
};

constexpr std::string_view kDeviceFile = "nvidia";

// "GPU UUID:   GPU-8c5a..."
std::string uuid_in(const std::string& file) {
  std::ifstream information(file);
  for (std::string line; information && read_line(information, line);)
    if (line.rfind("GPU UUID:", 0) == 0) return line.substr(std::min(line.find("GPU-"), line.size()));
  return "";
}

// Containers may lack the driver's folder; they have the file of each GPU, /dev/nvidia0.
std::vector<Gpu> gpus_without_addresses(const std::string& root) {
  const std::string folder = root + "/dev";
  if (access(folder.c_str(), R_OK) != 0) return {};
  std::map<int64_t, Gpu> by_number;
  for (const std::string& file : list_folder(folder)) {
    if (file.rfind(kDeviceFile, 0) != 0) continue;
    if (const auto number = parse_integer(file.substr(kDeviceFile.size()))) by_number[*number] = {file, ""};
  }
  std::vector<Gpu> gpus;
  for (auto& [number, gpu] : by_number) gpus.push_back(std::move(gpu));
  return gpus;
}

std::vector<Gpu> all_gpus(const std::string& root) {
  const std::string folder = root + "/proc/driver/nvidia/gpus";
  if (access(folder.c_str(), R_OK) != 0) return gpus_without_addresses(root);
  std::vector<std::string> addresses = list_folder(folder);
  std::sort(addresses.begin(), addresses.end());
  std::vector<Gpu> gpus;
  for (const std::string& address : addresses)
    gpus.push_back({address, uuid_in(folder + '/' + address + "/information")});
  return gpus;
}

// A UUID may be cut short where it is still the only one.
const Gpu* find_gpu(const std::vector<Gpu>& gpus, const std::string& id) {
  if (const auto number = parse_integer(id))
    return *number >= 0 && *number < static_cast<int64_t>(gpus.size()) ? &gpus[static_cast<size_t>(*number)] : nullptr;
  if (id.rfind("GPU-", 0) != 0) return nullptr;
  // Without the driver's folder nothing tells UUIDs: one is taken for a GPU that is there.
  const auto is_unknown = [](const Gpu& gpu) { return gpu.uuid.empty(); };
  const auto found =
      std::all_of(gpus.begin(), gpus.end(), is_unknown)
          ? gpus.begin()
          : std::find_if(gpus.begin(), gpus.end(), [&id](const Gpu& gpu) { return gpu.uuid.rfind(id, 0) == 0; });
  return found == gpus.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> visible_gpus(const std::string& ids, const std::string& root) {
  const std::vector<Gpu> gpus = all_gpus(root);
  std::vector<std::string> addresses;
  if (ids == "all") {
    for (const Gpu& gpu : gpus) addresses.push_back(gpu.address);
    return addresses;
  }
  for (const std::string& id : split_text(ids)) {
    const Gpu* const gpu = find_gpu(gpus, id);
    if (gpu == nullptr) break;
    addresses.push_back(gpu->address);
  }
  return addresses;
}

std::string visible_gpu_ids() {
  const char* const ids = std::getenv(kVisibleGpus);  // empty: none
  return ids == nullptr ? "all" : ids;
}

}  // namespace accel::launch
