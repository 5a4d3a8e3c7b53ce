// SPDX-License-Identifier: Apache-2.0
// Builds the states in which a power cut may leave the files of a recording.
//
// A file system promises what POSIX says and no more: data is on the disk when fsync() of its file has returned, and a
// name when that of its folder has. Until then each write may be there or not, in blocks of 4096 bytes, in any order; a
// file may have its new size and zeros for its data; names may come in any order too. A rename is there as a whole or
// not at all (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014, has what file systems do).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "file_record.hpp"

namespace power_cut {

// What a power cut did to an operation. One that had not begun is lost.
struct Fate {
  enum class Kind : uint8_t { kLost, kDone, kSizeAlone, kFirstBlock, kAllButFirstBlock, kSomeBlocks };
  Kind kind = Kind::kLost;
  uint64_t seed = 0;  // of kSomeBlocks: which they are
  std::string text() const;
};

struct CrashState {
  std::vector<Fate> fates;  // one for each operation
  size_t promised = 0;      // the largest promise that was given
};

Tree crash(const Recording& recording, const std::vector<Fate>& fates);

// Calls `visit` with all states of all moments if they are at most `most`, else with so many that are drawn, of each
// moment the same number or all. Where ranks do not wait for each other, a moment is a number of operations for each of
// them. Returns the number of moments of which all states were visited, and of all that were.
struct Moments {
  size_t complete = 0, all = 0;
};
Moments for_each_crash(const Recording& recording, size_t most, std::mt19937_64& random,
                       const std::function<void(const CrashState& state)>& visit);

}  // namespace power_cut
