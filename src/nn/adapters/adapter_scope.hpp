// SPDX-License-Identifier: Apache-2.0
// Adapter scope: which adapters act in the calls of a thread, in place of those that the model has active.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace accel::nn {

using AdapterNames = std::vector<std::string>;

// Bound to its thread; the innermost counts. Null: the active adapters of each model.
class AdapterScope {
 public:
  explicit AdapterScope(std::shared_ptr<const AdapterNames> names);
  ~AdapterScope();
  AdapterScope(const AdapterScope&) = delete;
  AdapterScope& operator=(const AdapterScope&) = delete;

  static std::shared_ptr<const AdapterNames> current();

 private:
  std::shared_ptr<const AdapterNames> outer_;
};

}  // namespace accel::nn
