// Which of the copies of the kernels the processor can run.
#pragma once

#include <cstdint>

namespace accel::kernels {

enum class InstructionSet : uint8_t { kBaseline, kAvx2, kAvx512 };

inline InstructionSet fastest_instruction_set() {
#ifdef __x86_64__
  if (!__builtin_cpu_supports("f16c")) return InstructionSet::kBaseline;  // the copies convert halves with it
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return InstructionSet::kAvx512;
  if (__builtin_cpu_supports("avx2")) return InstructionSet::kAvx2;
#endif
  return InstructionSet::kBaseline;
}

}  // namespace accel::kernels
