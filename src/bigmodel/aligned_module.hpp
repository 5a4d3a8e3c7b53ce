// SPDX-License-Identifier: Apache-2.0
// The weights of one module on a device, for a program that reads them outside of forwards.
// @accelerate align_module_device, has_offloaded_params
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <vector>

#include "bigmodel/dispatch.hpp"

namespace accel::bigmodel {

// Itself, not what is below it.
bool has_offloaded_parameters(const nn::Module& module);

class AlignedModule {
 public:
  // Without a device offloaded weights are on their main device, and others stay where they are.
  AlignedModule(const nn::ModulePtr& module, std::optional<c10::Device> device);
  ~AlignedModule();
  AlignedModule(const AlignedModule&) = delete;
  AlignedModule& operator=(const AlignedModule&) = delete;

  // Offloaded weights are hidden again, without changes; others have their former memory again, with changes. What
  // cannot be copied back has its former values, and the error is thrown.
  void finish();

 private:
  struct Moved {
    at::Tensor tensor;
    at::Tensor former;
  };
  size_t number_;  // as that of a block
  std::shared_ptr<Dispatch> dispatch_;
  std::vector<std::shared_ptr<OffloadedTensor>> shown_;
  std::vector<Moved> moved_;
};

}  // namespace accel::bigmodel
