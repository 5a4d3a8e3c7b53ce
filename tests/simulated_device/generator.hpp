// SPDX-License-Identifier: Apache-2.0
// Generators of random numbers of a device. They draw what LibTorch's generator of the CPU draws from the same seed.
#pragma once

#include <ATen/core/Generator.h>

namespace simulated_device {

at::Generator new_generator(c10::DeviceIndex device);
const at::Generator& default_generator(c10::DeviceIndex device);
// The generator of the CPU inside, from which operators draw. Throws if the generator is of another device.
at::Generator host_generator(const at::Generator& generator, c10::DeviceIndex device);

}  // namespace simulated_device
