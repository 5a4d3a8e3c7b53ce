// SPDX-License-Identifier: Apache-2.0
// Split boundary: ranks along "tensor" have the same values between their stages. Where these leave the host, each of
// the ranks sends a part of them, and those that get the parts, which are on one host, gather them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "parallel/gradient_exchange.hpp"
#include "parallel/pipeline/boundary_value.hpp"
#include "parallel/pipeline/pipeline_schedule.hpp"

namespace accel::parallel {

class SplitBoundary {
 public:
  SplitBoundary() = default;  // every rank sends whole values
  // `hosts` has those of each rank of the pipeline and of the ranks with the same stages: [pipeline * tensor].
  SplitBoundary(CommunicatorPtr tensor_ranks, at::IntArrayRef hosts);

  // The ranks that send parts of a value which passes between these stages; 1: each sends all of it.
  int64_t ranks(const PipelineShape& shape, int from, int to) const;
  // The part of a contiguous tensor that this rank sends.
  at::Tensor own_part(const at::Tensor& tensor, int64_t ranks) const;
  // Collective among the ranks along tensor: fills `whole` with the parts of the ranks, of tensors that are split.
  void gather(const std::vector<at::Tensor>& parts, std::vector<at::Tensor>& whole) const;

 private:
  CommunicatorPtr tensor_ranks_;
  std::vector<int64_t> hosts_;  // of each rank of the pipeline with its tensor ranks; below 0: they are not on one
};

// Says how values are sent.
struct BoundaryForm {
  BoundaryDtype dtype = std::nullopt;
  SplitBoundary split = {};
};

}  // namespace accel::parallel
