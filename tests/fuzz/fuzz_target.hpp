// SPDX-License-Identifier: Apache-2.0
// A fuzz target takes any bytes: FUZZ_TARGET(name) { ... data ... size ... return 0; }
// It is the one function of a program with libFuzzer, and one of many in the program that replays the corpora.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#ifdef ACCEL_REPLAYED_TARGETS
#define FUZZ_TARGET(name) extern "C" int fuzz_##name(const uint8_t* data, size_t size)
#else
#define FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#endif

inline void check(bool condition) {
  if (!condition) std::abort();
}
