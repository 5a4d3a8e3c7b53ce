// Which of the copies of the kernels the processor can run.
#pragma once

#ifdef __x86_64__
#include <cpuid.h>
#endif

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

// What it has for products of bfloat16.
enum class Bfloat16Products : uint8_t { kNone, kVectors, kTiles };

inline Bfloat16Products bfloat16_products() {
#ifdef __x86_64__
  constexpr unsigned kTilesBit = 1U << 22;  // AMX-BF16, in leaf 7
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kTilesBit) != 0) return Bfloat16Products::kTiles;
  if (__builtin_cpu_supports("avx512bf16")) return Bfloat16Products::kVectors;
#endif
  return Bfloat16Products::kNone;
}

}  // namespace accel::kernels
