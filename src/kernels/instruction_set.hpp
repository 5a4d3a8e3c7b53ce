// SPDX-License-Identifier: Apache-2.0
// Selects at run time the copy of a kernel for the best instruction set of the processor.
#pragma once

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <cstdint>

#include "machine/processors.hpp"

namespace accel::kernels {

enum class InstructionSet : uint8_t { kBaseline, kAvx2, kAvx512 };

inline InstructionSet find_instruction_set() {
#ifdef __x86_64__
  // The copies convert halves with F16C, a name that not every compiler's __builtin_cpu_supports() knows, and multiply
  // and add with FMA.
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_F16C) == 0 || (ecx & bit_FMA) == 0)
    return InstructionSet::kBaseline;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return InstructionSet::kAvx512;
  if (__builtin_cpu_supports("avx2")) return InstructionSet::kAvx2;
#endif
  return InstructionSet::kBaseline;
}

// Determined once: under a hypervisor each CPUID takes microseconds.
inline InstructionSet fastest_instruction_set() {
  static const InstructionSet found = find_instruction_set();
  return found;
}

// The fastest of a function's copies, which are in one namespace for each instruction set.
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

// Determined once: later changes of the environment do not affect oneDNN either.
inline Bfloat16Support bfloat16_support() {
  static const Bfloat16Support support = accel::bfloat16_support();
  return support;
}

}  // namespace accel::kernels
