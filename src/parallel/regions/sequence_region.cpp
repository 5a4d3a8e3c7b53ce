// SPDX-License-Identifier: Apache-2.0
#include "parallel/regions/sequence_region.hpp"

#include <ATen/core/Tensor.h>

#include "base/error.hpp"

namespace accel::parallel {
namespace {

const at::Tensor& checked(const at::Tensor& whole, const RankGroup& group) {
  check_sequence(whole, *group);
  return whole;
}

}  // namespace

void check_sequence(const at::Tensor& whole, const comm::Communicator& group) {
  require(whole.dim() >= 2, Status::kShapeMismatch, "a tensor of shape ", whole.sizes(),
          " has no sequence; expected [..., positions, features]");
  const int64_t length = whole.size(kSequence), ranks = group.size();
  require(length % ranks == 0, Status::kShapeMismatch, "a sequence of ", length, " positions is split over ", ranks,
          " ranks; expected a multiple, such as ", (length / ranks + 1) * ranks);
}

at::Tensor split_sequence(const at::Tensor& whole, const RankGroup& group) {
  return parallel_scatter(checked(whole, group), kSequence, group);
}

at::Tensor sum_and_split_sequence(const at::Tensor& terms, const RankGroup& group) {
  return parallel_reduce_scatter(checked(terms, group), kSequence, group);
}

at::Tensor gather_sequence(const at::Tensor& part, const RankGroup& group) {
  return parallel_gather(part, kSequence, GatheredGradient::kPartial, group);
}

}  // namespace accel::parallel
