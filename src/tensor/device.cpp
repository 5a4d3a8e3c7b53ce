#include "tensor/device.hpp"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <unistd.h>

#include <charconv>
#include <iterator>

#include "base/error.hpp"

namespace accel::tensor {
namespace {

struct DeviceName {
  DeviceKind kind;
  c10::DeviceType type;
  const char* name;
};

constexpr DeviceName kDevices[] = {
    {DeviceKind::kCpu, c10::DeviceType::CPU, "cpu"},
    {DeviceKind::kCuda, c10::DeviceType::CUDA, "cuda"},
    {DeviceKind::kMeta, c10::DeviceType::Meta, "meta"},
};

// Kinds of Accelerate's that are only known by name, from kMeta + 1 on.
struct UnsupportedKind {
  const char* name;
  const char* maker;
};
constexpr UnsupportedKind kUnsupportedKinds[] = {
    {"mps", "Apple"},  {"mlu", "Cambricon"}, {"sdaa", "Tecorigin"}, {"musa", "Moore Threads"}, {"npu", "Huawei"},
    {"hpu", "Habana"}, {"xpu", "Intel"},     {"neuron", "AWS"},     {"xla", "Google"},
};
constexpr int32_t kFirstUnsupported = static_cast<int32_t>(DeviceKind::kMeta) + 1;
static_assert(kFirstUnsupported + std::size(kUnsupportedKinds) - 1 == static_cast<size_t>(DeviceKind::kLastKnown));

[[noreturn]] void refuse(const UnsupportedKind& kind) {
  fail(Status::kUnsupported, "devices of the kind ", kind.name, " (", kind.maker,
       ") are not driven by this version, whose LibTorch has no kernels for them; expected cpu or cuda");
}

constexpr int32_t kLargestIndex = 127;  // c10::DeviceIndex has eight bits

// Only CUDA has several devices.
bool index_fits(c10::DeviceType type, int64_t index) {
  return index >= -1 && index <= (type == c10::DeviceType::CUDA ? kLargestIndex : 0);
}

// Loading LibTorch's CUDA library takes a second: only with a driver.
bool has_nvidia_driver() { return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0; }

int64_t cuda_device_count() {
  if (!has_nvidia_driver()) return 0;
  if (!at::hasCUDA() && dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) return 0;
  return at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
}

}  // namespace

c10::Device device_from_numbers(DeviceNumbers numbers) {
  for (const DeviceName& device : kDevices) {
    if (static_cast<int32_t>(device.kind) != numbers.kind) continue;
    require(index_fits(device.type, numbers.index), Status::kInvalidArgument, "device index ", numbers.index, " of ",
            device.name, " is out of range; expected -1 for the current device or a number from 0");
    return c10::Device(device.type, static_cast<c10::DeviceIndex>(numbers.index));
  }
  const int64_t unsupported = int64_t{numbers.kind} - kFirstUnsupported;
  if (unsupported >= 0 && unsupported < static_cast<int64_t>(std::size(kUnsupportedKinds)))
    refuse(kUnsupportedKinds[unsupported]);
  fail(Status::kInvalidArgument, "device type ", numbers.kind, " is not known; expected 0 (cpu), 1 (cuda) or 2 (meta)");
}

DeviceNumbers device_numbers(c10::Device device) {
  for (const DeviceName& known : kDevices) {
    if (known.type == device.type()) return {static_cast<int32_t>(known.kind), device.index()};
  }
  fail(Status::kUnsupported, "device ", device.str(), " has no number here; expected cpu, cuda or meta");
}

std::optional<c10::Device> find_device(std::string_view text) {
  const size_t colon = text.find(':');
  for (const DeviceName& device : kDevices) {
    if (text.substr(0, colon) != device.name) continue;
    if (colon == std::string_view::npos) return c10::Device(device.type);
    const std::string_view digits = text.substr(colon + 1);
    const char* const end = digits.data() + digits.size();
    uint32_t index = 0;  // without a sign
    const auto [stop, error] = std::from_chars(digits.data(), end, index);
    if (error != std::errc() || stop != end || !index_fits(device.type, index)) return std::nullopt;
    return c10::Device(device.type, static_cast<c10::DeviceIndex>(index));
  }
  return std::nullopt;
}

void refuse_unsupported_device(std::string_view text) {
  for (const UnsupportedKind& unsupported : kUnsupportedKinds)
    if (text.substr(0, text.find(':')) == unsupported.name) refuse(unsupported);
}

c10::Device parse_device(std::string_view text) {
  const std::optional<c10::Device> device = find_device(text);
  if (!device) refuse_unsupported_device(text);
  require(device.has_value(), Status::kInvalidArgument, "device '", text,
          "' is not known; expected cpu, cuda, cuda:N or meta");
  return *device;
}

int64_t device_count(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
    case DeviceKind::kMeta:
      return 1;
    case DeviceKind::kCuda:
      return cuda_device_count();
    default:
      return 0;
  }
}

void require_device(c10::Device device) {
  if (!device.is_cuda()) return;
  const int64_t count = cuda_device_count();
  require(count > 0, Status::kUnsupported, "device ", device.str(),
          " is not there; expected an NVIDIA driver, a GPU and a LibTorch with libtorch_cuda.so");
  require(device.index() < count, Status::kInvalidArgument, "device ", device.str(), " is not there; this machine has ",
          count, " GPUs");
}

}  // namespace accel::tensor
