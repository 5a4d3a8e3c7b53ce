// SPDX-License-Identifier: Apache-2.0
#include "optim/update_recording.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "optim/parameter_state.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/device/page_locked.hpp"

namespace accel::optim {
namespace {

constexpr size_t kMostNumbers = 16;  // of a parameter in a step

UpdateRecording*& current_recording() {
  thread_local UpdateRecording* current = nullptr;
  return current;
}

}  // namespace

UpdateRecording::UpdateRecording(c10::Device device, size_t num_parameters)
    : on_device_(at::empty({static_cast<int64_t>(kMostNumbers * (num_parameters + 1))},
                           at::TensorOptions(device).dtype(at::kDouble))) {}

UpdateRecording::~UpdateRecording() {
  if (is_ended_) return;
  for (const Former& former : former_) *former.number.mutable_data_ptr<float>() = former.value;
}

UpdateRecording::Scope::Scope(UpdateRecording& recording) : former_(std::exchange(current_recording(), &recording)) {}
UpdateRecording::Scope::~Scope() { current_recording() = former_; }

UpdateRecording* UpdateRecording::current() { return current_recording(); }

void UpdateRecording::note(const ParameterState& state) {
  const auto is_noted = [this](const at::Tensor& number) {
    return std::any_of(former_.begin(), former_.end(), [&](const Former& of) { return of.number.is_same(number); });
  };
  for (const at::Tensor& number : host_numbers(state))
    if (!is_noted(number)) former_.push_back({number, *number.const_data_ptr<float>()});
}

void UpdateRecording::count(const at::Tensor& step) { counts_.push_back(step); }

at::Tensor UpdateRecording::numbers(size_t count, at::ScalarType dtype, std::function<void(double*)> compute) {
  require(!at::isReducedFloatingType(dtype), Status::kUnsupported, "a captured step updates ", dtype,
          " parameters by float32 numbers of the host, which this dtype cannot represent; expected master weights or "
          "stochastic rounding");
  const size_t begin = values_.size();
  require(begin + count <= static_cast<size_t>(on_device_.numel()), Status::kUnsupported,
          "a captured step updates the same parameters many times; expected one update of each");
  values_.resize(begin + count);
  compute(values_.data() + begin);
  numbers_.push_back({begin, std::move(compute)});
  return on_device_.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(count)).to(dtype);
}

void UpdateRecording::end() {
  is_ended_ = true;
  former_.clear();
}

void UpdateRecording::advance() {
  if (!std::exchange(is_fresh_, false)) {
    for (const at::Tensor& step : counts_) *step.mutable_data_ptr<float>() += 1;
    for (const Numbers& of_update : numbers_) of_update.compute(values_.data() + of_update.begin);
  }
  if (values_ != written_) write();
}

// From memory of its own, because the device may copy it later.
void UpdateRecording::write() {
  const auto count = static_cast<int64_t>(values_.size());
  auto options = at::TensorOptions().dtype(at::kDouble);
  if (tensor::can_pin(on_device_.device().type())) options = options.pinned_memory(true);
  const at::Tensor host = tensor::empty_on_host({count}, options);
  std::copy(values_.begin(), values_.end(), host.mutable_data_ptr<double>());
  on_device_.narrow(0, 0, count).copy_(host, /*non_blocking=*/true);
  written_ = values_;
}

}  // namespace accel::optim
