// SPDX-License-Identifier: Apache-2.0
// Product count: the operations of the products that a thread computes.
#pragma once

#include <ATen/record_function.h>

#include <memory>

namespace accel::parallel {

// Counts while it lives; counts on one thread end in reverse order, and the innermost counts. A multiplication and an
// addition are two operations.
class ProductCount {
 public:
  ProductCount();
  ~ProductCount();
  ProductCount(const ProductCount&) = delete;
  ProductCount& operator=(const ProductCount&) = delete;

  double operations() const { return operations_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& operation);
  static void end(const at::RecordFunction& operation, at::ObserverContext* product);

  ProductCount* const outer_;
  at::CallbackHandle callback_ = 0;
  int depth_ = 0;  // of products within products, of which the outermost is counted
  double operations_ = 0;
};

}  // namespace accel::parallel
