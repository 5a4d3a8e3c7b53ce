// Memory for tensors that the ranks exchange again and again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "comm/communicator.hpp"

namespace accel::parallel {

// Flat zeros; in memory that the ranks of a host share if the backend has such, so that collectives need no copies.
at::Tensor communication_zeros(const comm::Communicator& communicator, int64_t numel, const at::TensorOptions& options);

}  // namespace accel::parallel
