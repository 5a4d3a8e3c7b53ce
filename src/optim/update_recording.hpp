// SPDX-License-Identifier: Apache-2.0
// Update recording: the numbers of the host in updates that a device records and does again. Optimizers count steps and
// compute rates on the host; a recorded update reads them on the device, where they are written before each time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "optim/rules/update_rule.hpp"

namespace accel::optim {

class UpdateRecording {
 public:
  // Before the device records, with memory for the numbers of this many parameters.
  UpdateRecording(c10::Device device, size_t num_parameters);
  // Without end() the step has not been recorded, and what the host has counted in it is taken back.
  ~UpdateRecording();
  UpdateRecording(const UpdateRecording&) = delete;
  UpdateRecording& operator=(const UpdateRecording&) = delete;

  // During its lifetime the updates of this thread are recorded.
  class Scope {
   public:
    explicit Scope(UpdateRecording& recording);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    UpdateRecording* former_;
  };
  // The recording of this thread, or null.
  static UpdateRecording* current();

  // Notes the numbers of a state that are on the host, before an update changes them.
  void note(const ParameterState& state);
  // A number of steps on the host, which each time counts.
  void count(const at::Tensor& step);
  // A vector on the device with numbers that `compute` writes, now and before each time. All it refers to belongs to
  // the optimizer, and stays while ParameterOptimizer::number_of_repeatable_state() does.
  at::Tensor numbers(size_t count, at::ScalarType dtype, std::function<void(double* numbers)> compute);

  void end();
  // Before the step is queued once more: counts, and queues the numbers on the current stream. The first time has the
  // numbers of the recording.
  void advance();

 private:
  struct Former {
    at::Tensor number;
    float value;
  };
  struct Numbers {
    size_t begin;
    std::function<void(double* numbers)> compute;
  };

  void write();

  at::Tensor on_device_;  // float64
  std::vector<double> values_, written_;
  std::vector<Former> former_;
  std::vector<at::Tensor> counts_;
  std::vector<Numbers> numbers_;
  bool is_ended_ = false;
  bool is_fresh_ = true;
};

}  // namespace accel::optim
