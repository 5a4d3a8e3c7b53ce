// SPDX-License-Identifier: Apache-2.0
#include "machine/processors.hpp"

#include <sched.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace accel {
namespace {

std::string upper_case(const char* name) {
  const char* const value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// oneDNN reads its own name first, then the one that it had before.
std::string onednn_limit() {
  const std::string limit = upper_case("ONEDNN_MAX_CPU_ISA");
  return limit.empty() ? upper_case("DNNL_MAX_CPU_ISA") : limit;
}

bool is_limited_below_vectors(std::string_view limit) {
  constexpr std::string_view kBelow[] = {"SSE41",           "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE",
                                         "AVX512_CORE_VNNI"};
  return std::find(std::begin(kBelow), std::end(kBelow), limit) != std::end(kBelow);
}

bool is_limited_below_tiles(std::string_view limit) {
  return is_limited_below_vectors(limit) || limit == "AVX512_CORE_BF16" || limit == "AVX512_CORE_FP16" ||
         limit == "AVX10_1_512";
}

#ifdef __x86_64__
// AMX-BF16 in leaf 7, and tiles that the system saves for a thread.
bool has_tiles() {
  constexpr unsigned kTilesOfBfloat16 = 1U << 22, kSaves = 1U << 27, kSavedTiles = 3U << 17;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kSaves) == 0) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kTilesOfBfloat16) == 0) return false;
  unsigned saved = 0, upper = 0;
  __asm__("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
  return (saved & kSavedTiles) == kSavedTiles;
}
#endif

}  // namespace

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string bfloat16_instructions() {
  std::string names;
#ifdef __x86_64__
  const std::string limit = onednn_limit();
  if (__builtin_cpu_supports("avx512bf16") && !is_limited_below_vectors(limit)) names = "avx512_bf16";
  if (has_tiles() && !is_limited_below_tiles(limit)) names += names.empty() ? "amx_bf16" : ", amx_bf16";
#elif defined(__aarch64__)
  constexpr unsigned long kBfloat16 = 1UL << 14;  // HWCAP2_BF16, which older headers lack
  if ((getauxval(AT_HWCAP2) & kBfloat16) != 0) names = "bf16";
#endif
  return names;
}

Bfloat16Support bfloat16_support() {
  const std::string names = bfloat16_instructions();
  if (names.empty()) return Bfloat16Support::kNone;
  return names.find("amx") == std::string::npos ? Bfloat16Support::kVectors : Bfloat16Support::kTiles;
}

std::string instruction_limits() {
  std::string limits = onednn_limit();
  const std::string mkl = upper_case("MKL_ENABLE_INSTRUCTIONS");
  if (!mkl.empty()) limits += (limits.empty() ? "MKL " : " MKL ") + mkl;
  return limits;
}

}  // namespace accel
