#include "parallel/communication_memory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace accel::parallel {

at::Tensor communication_zeros(const comm::Communicator& communicator, int64_t numel,
                               const at::TensorOptions& options) {
  if (const auto& group = communicator.process_group()) {
    const auto backend = group->getBackend(options.device().type());
    if (backend->supportsTensorAlloc(options.device().index())) return backend->allocateTensor(numel, options).zero_();
  }
  return at::zeros({numel}, options);
}

}  // namespace accel::parallel
