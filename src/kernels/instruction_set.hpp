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

// Of the copies of a function, one in a namespace for each instruction set, the fastest one.
#ifdef __x86_64__
template <typename Function>
Function* fastest_of(Function* baseline, Function* avx2, Function* avx512) {
  switch (fastest_instruction_set()) {
    case InstructionSet::kAvx512:
      return avx512;
    case InstructionSet::kAvx2:
      return avx2;
    default:
      return baseline;
  }
}
#define ACCEL_FASTEST(function) ::accel::kernels::fastest_of(baseline::function, avx2::function, avx512::function)
#else
#define ACCEL_FASTEST(function) baseline::function
#endif

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
