// SPDX-License-Identifier: Apache-2.0
// Generator branch: while it exists, the default generator of a device draws from another stream, which follows from
// the state of the former and a number. Afterwards the former goes on, moved by one draw whatever was drawn in the
// branch. So ranks draw different numbers in one part of a model, and the same again behind it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace accel::tensor {

class GeneratorBranch {
 public:
  // Without a number nothing changes.
  GeneratorBranch(c10::Device device, std::optional<uint64_t> number);
  ~GeneratorBranch();
  GeneratorBranch(const GeneratorBranch&) = delete;
  GeneratorBranch& operator=(const GeneratorBranch&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;  // of the former stream; undefined: nothing changed
};

}  // namespace accel::tensor
