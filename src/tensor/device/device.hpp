// SPDX-License-Identifier: Apache-2.0
// Devices: conversion between the numbers of the C API, LibTorch's devices and texts.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/device/device_kind.hpp"

namespace accel::tensor {

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

}  // namespace accel::tensor
