// Devices: conversion between the numbers of the C API, LibTorch's devices and names.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace accel::tensor {

// Pinned; the numbers of accel.h.
enum class DeviceKind : int32_t {
  kCpu = 0,
  kCuda = 1,
  kMeta = 2,
  kMps = 3,
  kMlu = 4,
  kSdaa = 5,
  kMusa = 6,
  kNpu = 7,
  kHpu = 8,
  kXpu = 9,
  kNeuron = 10,
  kXla = 11,
  kMtia = 12,
  kMaia = 13,
  kIpu = 14,
  kVe = 15,
  // LibTorch has place for one device that it does not know (PrivateUse1). It has this number unless the name that its
  // plugin registered is one of the above.
  kOutOfTree = 16,
  kLastKnown = kOutOfTree,
};

// The numbers are those of accel.h: index -1 is the current device of its kind.
struct DeviceNumbers {
  int32_t kind;
  int32_t index;
};

// kInvalidArgument for numbers that are not a device, kUnsupported for an out-of-tree kind whose plugin is not loaded.
c10::Device device_from_numbers(DeviceNumbers numbers);
// kUnsupported for a device of LibTorch that has no number here.
DeviceNumbers device_numbers(c10::Device device);

// "cpu", "cuda", "cuda:1", "meta"; nothing for anything else, and for an out-of-tree kind whose plugin is not loaded.
std::optional<c10::Device> find_device(std::string_view text);
// Parses as find_device(), with the error of device_from_numbers(), and kInvalidArgument for anything else.
c10::Device parse_device(std::string_view text);

// The kind of a name without an index, also of an out-of-tree kind whose plugin is not loaded.
std::optional<DeviceKind> find_device_kind(std::string_view name);
DeviceKind device_kind(c10::Device device);
// "cpu", or the name that an out-of-tree device registered; null for a number that is not a kind. Valid for ever.
const char* device_kind_name(DeviceKind kind);
// LibTorch's type; nothing for an out-of-tree kind whose plugin is not loaded.
std::optional<c10::DeviceType> device_type(DeviceKind kind);
// "cpu, cuda, ...": all kinds, for errors.
std::string known_devices();

}  // namespace accel::tensor
