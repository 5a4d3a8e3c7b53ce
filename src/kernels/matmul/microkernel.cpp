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

}  // namespace

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
