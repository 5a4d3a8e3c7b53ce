// SPDX-License-Identifier: Apache-2.0
// For which LibTorch, processor and device a package was made. All is read before its code is loaded.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <string_view>
#include <vector>

#include "json/json.hpp"
#include "nn/package/package_file.hpp"

namespace accel::nn {

// The instruction sets of this machine's processors by the kernel's list of them; none where it does not say.
std::vector<std::string> instruction_sets(const std::string& list = "/proc/cpuinfo");
// The names in `needed`, with blanks between, that are not among `there`.
std::vector<std::string> missing_instruction_sets(std::string_view needed, const std::vector<std::string>& there);

// The device that a package computes on: `asked`, a name with or without an index, or its own kind where that is empty.
// kUnsupported, with what the package was made for, where this process cannot run it. `description` is what accel
// compile wrote; may be null.
c10::Device check_target(const PackageFile& package, const Json& description, const std::string& asked,
                         const std::vector<std::string>& instructions = instruction_sets());

}  // namespace accel::nn
