// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/microkernel.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>

namespace accel::kernels {
namespace {

std::atomic<Microkernel> loaded{nullptr};

// LibTorch refuses the call on a processor without AVX-512.
bool runs(Microkernel kernel) {
  constexpr int64_t kSize = 16;
  alignas(64) std::array<float, kSize * kSize> first{}, second{}, result{};
  first[0] = second[0] = 1;
  try {
    kernel(kSize, kSize, kSize, kSize, kSize, kSize, false, first.data(), second.data(), result.data(), false);
    return result[0] == 1;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {  // LibTorch's, or oneDNN's own
    return false;
  }
}

// at::native::cpublas::brgemm() of bfloat16 and brgemm_release(), in LibTorch 2.11 to 2.13.
constexpr const char* kBfloat16Symbol = "_ZN2at6native7cpublas6brgemmEllllllbPKN3c108BFloat16ES5_Pfb";
constexpr const char* kReleaseSymbol = "_ZN2at6native7cpublas14brgemm_releaseEb";

using Release = void (*)(bool is_paired);

struct Bfloat16Symbols {
  Bfloat16Microkernel kernel = nullptr;
  Release release = nullptr;
};

// Where oneDNN has no kernel LibTorch multiplies as if the second matrix had no pairs.
bool multiplies_pairs(const Bfloat16Symbols& symbols) {
  constexpr int64_t kSize = 16;
  constexpr uint16_t kOne = 0x3f80;
  alignas(64) std::array<uint16_t, kSize * kSize> first{}, second{};
  alignas(64) std::array<float, kSize * kSize> result{};
  first[1] = kOne;                     // row 0, inner element 1
  second[2 * (kSize - 1) + 1] = kOne;  // inner element 1, the last column
  try {
    symbols.kernel(kSize, kSize, kSize, kSize, kSize, kSize, false, first.data(), second.data(), result.data(), true);
    symbols.release(true);
    return result[kSize - 1] == 1;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {  // LibTorch's, or oneDNN's own
    return false;
  }
}

Bfloat16Symbols find_bfloat16_symbols() {
  const Bfloat16Symbols found{reinterpret_cast<Bfloat16Microkernel>(dlsym(RTLD_DEFAULT, kBfloat16Symbol)),
                              reinterpret_cast<Release>(dlsym(RTLD_DEFAULT, kReleaseSymbol))};
  const bool works = found.kernel != nullptr && found.release != nullptr && multiplies_pairs(found);
  return works ? found : Bfloat16Symbols();
}

const Bfloat16Symbols& bfloat16_symbols() {
  static const Bfloat16Symbols symbols = find_bfloat16_symbols();
  return symbols;
}

}  // namespace

Bfloat16Microkernel bfloat16_microkernel() { return bfloat16_symbols().kernel; }

void release_microkernel() { bfloat16_symbols().release(true); }

MicrokernelStatus load_microkernel(const char* symbol) {
  static std::once_flag once;
  static MicrokernelStatus status = MicrokernelStatus::kNoSymbol;
  std::call_once(once, [symbol] {
    // Not a public function: looked up by name, so that the library still loads with a LibTorch that lacks it.
    const auto found = reinterpret_cast<Microkernel>(dlsym(RTLD_DEFAULT, symbol));
    if (found == nullptr) return;
    status = runs(found) ? MicrokernelStatus::kAvailable : MicrokernelStatus::kNoProcessor;
    if (status == MicrokernelStatus::kAvailable) loaded.store(found, std::memory_order_release);
  });
  return status;
}

Microkernel microkernel() { return loaded.load(std::memory_order_acquire); }

}  // namespace accel::kernels
