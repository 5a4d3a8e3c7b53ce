#include "parallel/regions/sequence_region.hpp"

#include <ATen/core/Tensor.h>

#include "base/error.hpp"

namespace accel::parallel {
namespace {

constexpr int64_t kSequence = -2;

const at::Tensor& checked(const at::Tensor& whole, const RankGroup& group) {
  require(whole.dim() >= 2, Status::kShapeMismatch, "a tensor of shape ", whole.sizes(),
          " has no sequence; expected [..., positions, features]");
  const int64_t length = whole.size(kSequence), ranks = group->size();
  require(length % ranks == 0, Status::kShapeMismatch, "a sequence of ", length, " positions is split over ", ranks,
          " ranks; expected a multiple, such as ", (length / ranks + 1) * ranks);
  return whole;
}

}  // namespace

at::Tensor split_sequence(const at::Tensor& whole, const RankGroup& group) {
  return parallel_scatter(checked(whole, group), kSequence, group);
}

at::Tensor sum_and_split_sequence(const at::Tensor& terms, const RankGroup& group) {
  return parallel_reduce_scatter(checked(terms, group), kSequence, group);
}

at::Tensor gather_sequence(const at::Tensor& part, const RankGroup& group) {
  return parallel_gather(part, kSequence, GatheredGradient::kPartial, group);
}

void sum_gradient(const at::Tensor& parameter, const RankGroup& group) {
  if (!parameter.is_floating_point()) return;
  const bool is_trained = parameter.requires_grad();
  parameter.set_requires_grad(true);  // a frozen parameter may be trained later
  parameter.register_hook([group](const at::Tensor& gradient) { return parallel_reduce(gradient, group); });
  parameter.set_requires_grad(is_trained);
}

}  // namespace accel::parallel
