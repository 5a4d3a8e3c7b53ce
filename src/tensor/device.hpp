// Devices: conversion between the numbers of the C API, LibTorch's devices and names.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace accel::tensor {

// Pinned; the numbers of accel.h.
enum class DeviceKind : int32_t { kCpu = 0, kCuda = 1, kMeta = 2, kLastKnown = 11 };

// As in accel.h: index -1 is the current device of its kind.
struct DeviceNumbers {
  int32_t kind;
  int32_t index;
};

// kInvalidArgument for numbers that are not a device, kUnsupported for kinds that this version does not support.
c10::Device device_from_numbers(DeviceNumbers numbers);
// kUnsupported for a device of LibTorch that has no number here.
DeviceNumbers device_numbers(c10::Device device);
// "cpu", "cuda", "cuda:1", "meta"; nothing for anything else.
std::optional<c10::Device> find_device(std::string_view text);
// Throws kUnsupported for kinds of Accelerate that this version does not support: "mps", "xpu:0".
void refuse_unsupported_device(std::string_view text);
// As find_device(), with these errors, and kInvalidArgument for anything else.
c10::Device parse_device(std::string_view text);

// The number of usable devices; loads LibTorch's CUDA library if there is a driver. 0 for an unknown kind.
int64_t device_count(DeviceKind kind);
// Loads LibTorch's CUDA library for a CUDA device; kUnsupported if there is no such device.
void require_device(c10::Device device);

}  // namespace accel::tensor
