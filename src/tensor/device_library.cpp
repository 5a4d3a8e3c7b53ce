#include "tensor/device_library.hpp"

#include <array>
#include <atomic>
#include <cstddef>

namespace accel::tensor {
namespace {

std::atomic<void*>& library_of(c10::DeviceType type) {
  static std::array<std::atomic<void*>, static_cast<size_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>
      libraries{};
  return libraries.at(static_cast<size_t>(type));
}

}  // namespace

void set_device_library(c10::DeviceType type, void* library) { library_of(type) = library; }
void* device_library(c10::DeviceType type) { return library_of(type); }

}  // namespace accel::tensor
