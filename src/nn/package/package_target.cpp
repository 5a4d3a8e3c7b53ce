// SPDX-License-Identifier: Apache-2.0
#include "nn/package/package_target.hpp"

#include <c10/core/DeviceType.h>
#include <sys/utsname.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <fstream>

#include "base/error.hpp"
#include "base/name_list.hpp"
#include "base/split_text.hpp"
#include "base/text_ends.hpp"
#include "os/read_line.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"

namespace accel::nn {
namespace {

// AOTInductor's names of instruction sets, and the kernel's.
struct Instructions {
  const char* name;
  const char* needed;
};
constexpr Instructions kInstructions[] = {
    {"AVX2", "avx2 fma f16c"},
    {"AVX512", "avx512f avx512dq avx512vl avx512bw fma"},
    {"AVX512_VNNI", "avx512_vnni"},
    {"AMX_TILE", "amx_tile"},
    {"ASIMD", "asimd"},
    {"SVE", "sve"},
    {"SVE256", "sve"},
};

std::string this_machine() {
  utsname system = {};
  uname(&system);
  return system.machine;
}

void check_instructions(const PackageFile& package, const std::string& needed, const std::vector<std::string>& there) {
  const std::vector<std::string> missing = missing_instruction_sets(needed, there);
  require(missing.empty(), Status::kUnsupported, "the package '", package.path(),
          "' was made for a processor with the instructions ", list_names(missing),
          ", which this one lacks; make it on a machine like this one");
}

void check_libtorch(const PackageFile& package, const Json& description) {
  const std::string version = json_text(description, "libtorch", "");
  if (version.empty()) return;  // AOTInductor does not say
  const std::vector<std::string> numbers = split_text(TORCH_VERSION, '.');
  const std::string here = numbers[0] + "." + numbers[1] + ".";
  require(starts_with(version, here), Status::kUnsupported, "the package '", package.path(), "' was made by LibTorch ",
          version, ", and this is ", TORCH_VERSION, "; make it with ", here, "*, whose code fits");
}

}  // namespace

std::vector<std::string> instruction_sets(const std::string& list) {
  std::ifstream file(list);
  for (std::string line; read_line(file, line);)
    if (starts_with(line, "flags") || starts_with(line, "Features"))
      return split_text(std::string_view(line).substr(std::min(line.find(':') + 1, line.size())), ' ');
  return {};
}

std::vector<std::string> missing_instruction_sets(std::string_view needed, const std::vector<std::string>& there) {
  std::vector<std::string> missing;
  for (const std::string& one : split_text(needed, ' '))
    if (!one.empty() && std::find(there.begin(), there.end(), one) == there.end()) missing.push_back(one);
  return missing;
}

c10::Device check_target(const PackageFile& package, const Json& description, const std::string& asked,
                         const std::vector<std::string>& instructions) {
  const std::string platform = package.text_of("AOTI_PLATFORM"), machine = package.text_of("AOTI_MACHINE");
  require(platform.empty() || platform == "linux", Status::kUnsupported, "the package '", package.path(),
          "' was made for the system '", platform, "'; expected linux");
  require(machine.empty() || machine == this_machine(), Status::kUnsupported, "the package '", package.path(),
          "' was made for machines of the kind ", machine, ", and this is ", this_machine());
  check_libtorch(package, description);
  if (!instructions.empty()) {
    for (const std::string& name : split_text(package.text_of("AOTI_CPU_ISA"), ' '))
      for (const Instructions& one : kInstructions)
        if (name == one.name) check_instructions(package, one.needed, instructions);
    check_instructions(package, json_text(description, "processor", ""), instructions);
  }
  const std::string kind = package.text_of("AOTI_DEVICE_KEY");
  require(!kind.empty(), Status::kCorrupt, "the package '", package.path(), "' does not say for which device it is");
  const c10::Device device = tensor::parse_device(asked.empty() ? kind : asked);
  require(c10::DeviceTypeName(device.type(), /*lower_case=*/true) == kind, Status::kUnsupported, "the package '",
          package.path(), "' was made for the device ", kind, ", and '", asked,
          "' is asked for; make another one for it");
  tensor::require_device(device);
  return device;
}

}  // namespace accel::nn
