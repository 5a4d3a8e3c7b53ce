// Whether the LibTorch of this process is the one that libaccel was built for. Two versions share names but not the
// layout of objects, so with another one the first operator would read the wrong memory.
#pragma once

#include <string>
#include <string_view>

namespace accel::capi {

// What the dynamic linker gave us. Another part of the program may have loaded its own copy before ours could be.
struct LoadedLibtorch {
  std::string version;    // "2.13.0"; empty when it is too old to tell
  std::string torch_cpu;  // the file that our operators come from
  std::string c10;        // the file of its base library
  std::string accel;      // the file that this code is in
};

// Throws UNSUPPORTED when it is not `built_for`, or when its two libraries are not of one copy.
void check_libtorch(const LoadedLibtorch& loaded, std::string_view built_for);

// Checks the one that is loaded, without calling anything in it but for its version.
void require_matching_libtorch();

}  // namespace accel::capi
