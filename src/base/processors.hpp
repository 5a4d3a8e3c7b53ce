// The processors of this process, their division among the ranks of a host, and what they have for bfloat16.
#pragma once

#include <cstdint>
#include <string>

namespace accel {

// The processors that this process may use, which a container or a batch system may have limited; at least 1.
int usable_processors();

// Binds this thread, and those that it starts, to the part of a rank when the usable processors are divided among
// `ranks`. Neighbours stay together, as they mostly share a cache and memory. Returns the size of the part; 0, and
// binds nothing, when there are fewer processors than ranks.
int bind_to_share(int rank, int ranks);

// Instructions of the processor for matmuls of bfloat16: none, vector instructions, or matrix tiles (AMX).
enum class Bfloat16Support : uint8_t { kNone, kVectors, kTiles };

// ONEDNN_MAX_CPU_ISA, which limits the instructions of oneDNN and so of LibTorch's matmuls, limits the answer too.
Bfloat16Support bfloat16_support();

// The instructions by their names, "avx512_bf16, amx_bf16"; empty when there are none.
std::string bfloat16_instructions();

// What the environment says to limit the instructions of oneDNN and MKL, "AVX512_CORE_VNNI"; empty without a limit.
std::string instruction_limits();

}  // namespace accel
