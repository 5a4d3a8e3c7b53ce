// SPDX-License-Identifier: Apache-2.0
// Offload chain: whole models that are on a device one after the other, from their forward until the next one is
// called.
// @accelerate cpu_offload_with_hook, CpuOffload, UserCpuOffloadHook
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "nn/module.hpp"

namespace accel::bigmodel {

class OffloadHook {
 public:
  // `previous` leaves the device when this model is called; may be null.
  static std::shared_ptr<OffloadHook> add(const nn::ModulePtr& model, c10::Device device,
                                          std::shared_ptr<OffloadHook> previous);

  // Moves the model to the CPU.
  void offload() const;
  // The model stays where it is, and is not moved any more.
  void remove();

 private:
  OffloadHook(const nn::ModulePtr& model, std::shared_ptr<OffloadHook> previous)
      : model_(model), previous_(std::move(previous)) {}

  std::weak_ptr<nn::Module> model_;  // whose hook owns this
  std::shared_ptr<OffloadHook> previous_;
  int64_t hook_ = -1;
};

}  // namespace accel::bigmodel
