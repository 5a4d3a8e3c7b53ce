// SPDX-License-Identifier: Apache-2.0
#include "launch/nvidia_gpus.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/deadline.hpp"
#include "launch/command_output.hpp"
#include "machine/processor_affinity.hpp"
#include "machine/visible_gpus.hpp"
#include "os/read_line.hpp"

namespace accel::launch {
namespace {

constexpr Deadline::Milliseconds kMostOfTheAnswer(5000);

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// The driver's program has eight digits of the domain, its folder four, in small letters.
std::string folder_address(std::string address) {
  constexpr size_t kDomain = 4, kFull = 8;
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return address.find(':') == kFull ? address.substr(kDomain) : address;
}

std::string model_in(const std::string& file) {
  constexpr const char kModel[] = "Model:";
  std::ifstream information(file);
  for (std::string line; information && read_line(information, line);)
    if (line.rfind(kModel, 0) == 0) return trimmed(line.substr(sizeof kModel - 1));
  return "";
}

std::vector<NvidiaGpu> ask_driver() {
  const auto printed = command_output(
      {"nvidia-smi", "--query-gpu=pci.bus_id,name,compute_cap", "--format=csv,noheader"}, Deadline(kMostOfTheAnswer));
  return printed ? parse_nvidia_gpus(*printed) : std::vector<NvidiaGpu>();
}

Json describe(const NvidiaGpu& gpu, const std::string& file) {
  Json::Members members;
  if (!gpu.model.empty()) members.emplace_back("model", Json(gpu.model));
  members.emplace_back(file.empty() ? "address" : "file", Json(file.empty() ? gpu.address : file));
  if (const auto node = node_of_device(file.empty() ? gpu.address : file))
    members.emplace_back("memory_node", Json::number(int64_t{*node}));
  if (!gpu.compute_capability.empty()) {
    members.emplace_back("compute_capability", Json(gpu.compute_capability));
    members.emplace_back("fp8", Json(has_fp8(gpu.compute_capability)));
  }
  return Json(std::move(members));
}

}  // namespace

std::vector<NvidiaGpu> parse_nvidia_gpus(const std::string& printed) {
  std::vector<NvidiaGpu> gpus;
  std::istringstream lines(printed);
  for (std::string line; read_line(lines, line);) {
    const size_t first = line.find(','), last = line.rfind(',');
    if (first == std::string::npos || first == last) continue;
    gpus.push_back({folder_address(trimmed(line.substr(0, first))), trimmed(line.substr(first + 1, last - first - 1)),
                    trimmed(line.substr(last + 1))});
  }
  return gpus;
}

bool has_fp8(const std::string& compute_capability) {
  int major = 0, minor = 0;
  if (std::sscanf(compute_capability.c_str(), "%d.%d", &major, &minor) != 2) return false;
  return std::make_pair(major, minor) >= std::make_pair(8, 9);
}

Json nvidia_gpus() {
  const std::vector<NvidiaGpu> told = ask_driver();
  const std::vector<std::string> places = visible_gpus("all");
  Json::Items gpus;
  for (size_t i = 0; i < places.size(); i++) {
    const std::string& place = places[i];
    const bool is_address = place.find(':') != std::string::npos;
    // Without the driver's folder the files of GPUs are in the driver's order.
    const auto found =
        is_address ? std::find_if(told.begin(), told.end(), [&](const NvidiaGpu& gpu) { return gpu.address == place; })
                   : told.begin() + static_cast<std::ptrdiff_t>(std::min(i, told.size()));
    NvidiaGpu gpu = found == told.end() ? NvidiaGpu{place, "", ""} : *found;
    if (is_address && gpu.model.empty()) gpu.model = model_in("/proc/driver/nvidia/gpus/" + place + "/information");
    gpus.emplace_back(describe(gpu, is_address ? "" : place));
  }
  if (places.empty())
    for (const NvidiaGpu& gpu : told) gpus.emplace_back(describe(gpu, ""));
  return Json(std::move(gpus));
}

}  // namespace accel::launch
