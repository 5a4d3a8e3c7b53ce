// SPDX-License-Identifier: Apache-2.0
#include "nn/adapters/adapter_scope.hpp"

#include <utility>

namespace accel::nn {
namespace {

std::shared_ptr<const AdapterNames>& names_of_thread() {
  thread_local std::shared_ptr<const AdapterNames> names;
  return names;
}

}  // namespace

AdapterScope::AdapterScope(std::shared_ptr<const AdapterNames> names)
    : outer_(std::exchange(names_of_thread(), std::move(names))) {}

AdapterScope::~AdapterScope() { names_of_thread() = std::move(outer_); }

std::shared_ptr<const AdapterNames> AdapterScope::current() { return names_of_thread(); }

}  // namespace accel::nn
