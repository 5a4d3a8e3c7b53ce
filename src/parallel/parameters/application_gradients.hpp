// SPDX-License-Identifier: Apache-2.0
// Gradients that the application computes itself: it marks each as ready, and they are averaged over the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "comm/work.hpp"
#include "parallel/parallel_model.hpp"

namespace accel {
struct FsdpSettings;
}

namespace accel::parallel {

// Whether a gradient was computed in the memory that it is wanted in.
inline bool is_same_memory(const at::Tensor& given, const at::Tensor& memory) {
  return given.scalar_type() == memory.scalar_type() && given.is_contiguous() &&
         given.const_data_ptr() == memory.const_data_ptr();
}

class ApplicationGradients {
 public:
  virtual ~ApplicationGradients() = default;

  // The number of trainable parameters, which are in the order of Module::named_parameters().
  virtual size_t size() const = 0;
  // Memory for the gradient, which the application may write instead of passing it.
  virtual const at::Tensor& gradient(size_t index) = 0;

  // Whether this micro-batch ends an accumulation window, and the factor for its gradients, besides the mean over the
  // ranks.
  using Exchange = std::optional<double>;

  // Thread-safe. Marks one gradient of this micro-batch as ready: the application has written it, or passes it, and
  // then it is copied in the first micro-batch of a window and added in later ones, unless it is that memory itself.
  virtual void ready(size_t index, const at::Tensor& given, Exchange exchange) = 0;
  // At the end of a micro-batch, after all gradients are ready. Returns when all are averaged.
  virtual void synchronize(Exchange exchange) = 0;
  // Starts synchronize() without waiting; the work completes when all gradients are averaged.
  virtual std::shared_ptr<comm::Work> start(Exchange exchange) = 0;

  // Collective if parameters are sharded: those of one group, named by its module, are whole until reshard() or the end
  // of the micro-batch. Without `wait` they are on their way.
  virtual void unshard(const std::string& /*module*/, bool /*wait*/) {}
  virtual void reshard(const std::string& /*module*/) {}
};

struct ParallelGradients {
  ParallelModelPtr model;
  std::shared_ptr<ApplicationGradients> gradients;
};

// Applies the kind of data parallelism of the settings; collective.
ParallelGradients parallelize_gradients(nn::ModulePtr module, const ModelRanks& ranks, const FsdpSettings& settings,
                                        double bucket_cap_mb, c10::Device device);

}  // namespace accel::parallel
