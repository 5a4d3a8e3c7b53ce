// SPDX-License-Identifier: Apache-2.0
// Deferred products: gradients of weights that backward does not compute, but keeps what they need, so that they can
// be computed when nobody waits for another gradient: the second half of a backward in zero-bubble pipelines (Qi et
// al., "Zero Bubble Pipeline Parallelism", 2023).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::nn {

class DeferredProducts : public std::enable_shared_from_this<DeferredProducts> {
 public:
  // Lets at::linear() of tensors on the CPU ask the scope of its thread, as the layers of this library do anywhere.
  static std::shared_ptr<DeferredProducts> create();

  // Bound to its thread; the innermost counts. Products with weights that are parameters are deferred inside.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<DeferredProducts> products);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class DeferredProducts;
    const std::shared_ptr<DeferredProducts> products_;
    const Scope* const outer_;
  };
  // Null if this thread has no scope, or the gradients of these parameters are not for them.
  static std::shared_ptr<DeferredProducts> of(const at::Tensor& weight, const at::Tensor& bias);

  // The product of the input with the weight, whose dimension `output_dim` has the outputs, and the bias if it is
  // defined; in half precision under autocast. Backward computes the gradient of the input alone.
  at::Tensor multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, int64_t output_dim);

  // Computes the gradients of the weights whose backwards have come since the last call, and adds them as a backward
  // does, with its hooks: in place where there is none, and otherwise with memory for all of them at a time.
  void complete();

 private:
  friend struct DeferredProduct;

  struct Pending {
    at::Tensor input, gradient;  // of the output
    at::Tensor weight, bias;
    int64_t output_dim;
  };

  std::vector<Pending> pending_;
};

}  // namespace accel::nn
