// Processors of this process: their number, binding of ranks, and instructions for bfloat16.
#pragma once

#include <cstdint>
#include <string>

namespace accel {

// The number of processors that this process may use, which a container or batch system may limit; at least 1.
int usable_processors();

// Divides the usable processors among `ranks` and binds this thread, and those that it starts, to the part of one rank.
// Parts consist of neighbours, which mostly share a cache and memory. Returns the size of the part; 0, without binding,
// if there are fewer processors than ranks.
int bind_to_share(int rank, int ranks);

// Instructions of the processor for matmuls of bfloat16: none, vector instructions, or matrix tiles (AMX).
enum class Bfloat16Support : uint8_t { kNone, kVectors, kTiles };

// ONEDNN_MAX_CPU_ISA, which limits the instructions of oneDNN and so of LibTorch's matmuls, is considered too.
Bfloat16Support bfloat16_support();

// The names of the instructions, "avx512_bf16, amx_bf16"; empty without any.
std::string bfloat16_instructions();

// The limit of instructions for oneDNN and MKL in the environment, "AVX512_CORE_VNNI"; empty without one.
std::string instruction_limits();

}  // namespace accel
