// SPDX-License-Identifier: Apache-2.0
#include "tensor/operators/failed_operator.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

namespace accel::tensor {
namespace {

// Callbacks of LibTorch are plain functions.
struct Watches {
  std::mutex mutex;
  std::vector<FailedOperator*> all;
};

Watches& watches() {
  static auto* const watches = new Watches;  // threads of autograd outlive static objects
  return *watches;
}

struct Call final : at::ObserverContext {
  const int exceptions = std::uncaught_exceptions();
};

std::unique_ptr<at::ObserverContext> begin_call(const at::RecordFunction&) { return std::make_unique<Call>(); }

// An operator that ends while an exception is on its way through it has failed.
void end_call(const at::RecordFunction& function, at::ObserverContext* call) {
  if (std::uncaught_exceptions() <= static_cast<Call*>(call)->exceptions) return;
  const std::lock_guard<std::mutex> lock(watches().mutex);
  for (FailedOperator* const watch : watches().all) watch->note(function.name());
}

at::CallbackHandle watch_calls() {
  return at::addGlobalCallback(at::RecordFunctionCallback(&begin_call, &end_call).scopes({at::RecordScope::FUNCTION}));
}

}  // namespace

FailedOperator::FailedOperator() : callback_(watch_calls()) {
  const std::lock_guard<std::mutex> lock(watches().mutex);
  watches().all.push_back(this);
}

FailedOperator::~FailedOperator() {
  at::removeCallback(callback_);
  const std::lock_guard<std::mutex> lock(watches().mutex);
  auto& all = watches().all;
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
}

std::string FailedOperator::name() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return name_;
}

void FailedOperator::note(const char* name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (name_.empty()) name_ = name;
}

}  // namespace accel::tensor
