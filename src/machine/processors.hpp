// SPDX-License-Identifier: Apache-2.0
// Processors of this process: their number, and instructions for bfloat16.
#pragma once

#include <cstdint>
#include <string>

namespace accel {

// The number of processors that this process may use, which a container or batch system may limit; at least 1.
int usable_processors();

// Instructions of the processor for matmuls of bfloat16: none, vector instructions, or matrix tiles (AMX).
enum class Bfloat16Support : uint8_t { kNone, kVectors, kTiles };

// ONEDNN_MAX_CPU_ISA, which limits the instructions of oneDNN and so of LibTorch's matmuls, is considered too.
Bfloat16Support bfloat16_support();

// The names of the instructions, "avx512_bf16, amx_bf16"; empty without any.
std::string bfloat16_instructions();

// The limit of instructions for oneDNN and MKL in the environment, "AVX512_CORE_VNNI"; empty without one.
std::string instruction_limits();

}  // namespace accel
