// SPDX-License-Identifier: Apache-2.0
// Libraries that a shared object names for the dynamic linker.
#pragma once

#include <string>
#include <string_view>

namespace accel::nn {

// Has the shared object name `other`, which it also needs, where it names `library`. Whatever is no shared object of
// this machine, or does not need both, stays as it is: the linker says what is wrong with it.
void replace_needed_library(const std::string& path, std::string_view library, std::string_view other);

}  // namespace accel::nn
