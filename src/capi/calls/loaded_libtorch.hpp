// SPDX-License-Identifier: Apache-2.0
// Checks that the LibTorch of this process is the version that libaccel was built for. Versions have the same names but
// other object layouts, so that the first operator would access wrong memory.
#pragma once

#include <string>
#include <string_view>

namespace accel::capi {

// The LibTorch that the dynamic linker has bound. The application may have loaded another copy first.
struct LoadedLibtorch {
  std::string version;    // "2.13.0"; empty when it is too old to tell
  std::string torch_cpu;  // the file that our operators come from
  std::string c10;        // the file of its base library
  std::string accel;      // the file that this code is in
};

LoadedLibtorch loaded_libtorch();

// Throws UNSUPPORTED unless its version is `built_for` and its two libraries are of one copy.
void check_libtorch(const LoadedLibtorch& loaded, std::string_view built_for);

// Checks the loaded one, without calling anything in it except for its version.
void require_matching_libtorch();

}  // namespace accel::capi
