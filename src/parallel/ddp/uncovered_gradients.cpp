// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/uncovered_gradients.hpp"

#include <ATen/core/Tensor.h>

namespace accel::parallel {

void UncoveredGradients::note(size_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  are_uncovered_[number] = true;
}

void UncoveredGradients::forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  are_uncovered_.assign(parameters_.size(), false);
}

void UncoveredGradients::add_to(std::vector<UncoveredGradient>& found) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t number = 0; number < parameters_.size(); number++) {
    const auto& [name, parameter] = parameters_[number];
    if (are_uncovered_[number] && parameter.grad().defined()) found.push_back({name, parameter, /*was_frozen=*/false});
    are_uncovered_[number] = are_uncovered_[number] && parameter.grad().defined();  // the program may have dropped it
  }
}

bool UncoveredGradients::covers(const at::Tensor& parameter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t number = 0; number < parameters_.size(); number++)
    if (parameters_[number].second.is_same(parameter)) return !are_uncovered_[number];
  return false;
}

}  // namespace accel::parallel
