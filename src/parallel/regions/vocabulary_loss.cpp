// SPDX-License-Identifier: Apache-2.0
#include "parallel/regions/vocabulary_loss.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/job_rank.hpp"
#include "nn/split/split_operators.hpp"
#include "parallel/regions/sequence_region.hpp"

namespace accel::parallel {

nn::SplitClassesPtr split_classes(const RankGroup& group, int64_t whole, bool splits_sequence) {
  require(whole >= group->size(), Status::kInvalidArgument, "the number of all classes is ", whole,
          "; expected at least ", group->size(), ", one for each rank that splits them");
  kernels::ClassShare share;
  const Share own = share_of(whole, group->rank(), group->size());
  share.begin = own.begin;
  share.size = own.size;
  share.whole = whole;
  share.ranks = group->size();
  share.gather = [group](const at::Tensor& sums) {
    std::vector<int64_t> sizes = sums.sizes().vec();
    sizes.insert(sizes.begin(), group->size());
    const at::Tensor all = at::empty(sizes, sums.options());
    group->all_gather(sums.contiguous(), all);
    return all;
  };
  nn::SplitClasses classes;
  classes.share = std::make_shared<const kernels::ClassShare>(std::move(share));
  classes.enter = [group, splits_sequence](const at::Tensor& input) {
    return splits_sequence ? gather_sequence(input, group) : parallel_copy(input, group);
  };
  return std::make_shared<const nn::SplitClasses>(std::move(classes));
}

at::Tensor class_scores(const at::Tensor& own, const nn::SplitClassesPtr& classes, const RankGroup& group) {
  require(own.dim() > 0 && own.size(-1) == classes->share->size, Status::kShapeMismatch, "rank ",
          comm::job_rank(*group, group->rank()), " has logits of shape ", own.sizes(), "; expected ",
          classes->share->size, " of ", classes->share->whole, " classes in the last dimension");
  if (group->size() == 1) return own;
  if (own.requires_grad()) {
    nn::install_split_classes(own.device());
    return nn::mark_split_scores(own, classes);
  }
  return parallel_gather(own, -1, GatheredGradient::kReplicated, group, classes->share->whole);
}

}  // namespace accel::parallel
