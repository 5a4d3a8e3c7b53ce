#include "state/device_choice.hpp"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <unistd.h>

#include "base/error.hpp"

namespace accel::state {
namespace {

// Loading the CUDA half of LibTorch takes a second: only with a driver.
bool has_nvidia_driver() { return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0; }

// Zero when there is no GPU, or no CUDA library beside LibTorch.
int64_t cuda_device_count() {
  if (!has_nvidia_driver()) return 0;
  if (!at::hasCUDA() && dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) return 0;
  return at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
}

c10::Device cuda_device(int64_t index, int64_t count) {
  require(count > 0, Status::kUnsupported, "device cuda was asked for and there is none; expected an NVIDIA driver, a GPU and a "
          "LibTorch with libtorch_cuda.so");
  require(index < count, Status::kInvalidArgument, "device cuda:", index, " was asked for; there are ", count, " GPUs");
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
  c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->setDevice(device);
  return device;
}

c10::Device named_device(const std::string& name, int64_t local_rank) {
  c10::Device device(c10::DeviceType::CPU);
  try {
    device = c10::Device(name);
  } catch (const c10::Error&) {
    fail(Status::kInvalidArgument, "environment variable ACCELERATE_TORCH_DEVICE is '", name, "'; expected cpu, cuda or cuda:N");
  }
  if (device.is_cpu()) return device;
  require(device.is_cuda(), Status::kUnsupported, "environment variable ACCELERATE_TORCH_DEVICE is '", name,
          "'; this build drives cpu and cuda");
  const int64_t count = cuda_device_count();
  return cuda_device(device.has_index() ? device.index() : (count > 0 ? local_rank % count : 0), count);
}

}  // namespace

c10::Device choose_device(const StateSettings& settings) {
  const int64_t local_rank = settings.process.local_process_index;
  if (!settings.torch_device.value.empty()) return named_device(settings.torch_device, local_rank);
  if (settings.cpu) return c10::Device(c10::DeviceType::CPU);
  const int64_t count = cuda_device_count();
  return count > 0 ? cuda_device(local_rank % count, count) : c10::Device(c10::DeviceType::CPU);
}

}  // namespace accel::state
