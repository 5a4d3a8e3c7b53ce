// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor/shared_parts.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/split_with_sizes.h>

#include <algorithm>
#include <vector>

#include "comm/group.hpp"

namespace accel::parallel {

void SharedParts::sum_gradient(const at::Tensor& parameter, const DimensionCut& cut,
                               const tensor::Placement& placement) {
  int64_t copies = 1;
  for (const PackedCut& packed : cut.packed) copies = std::max(copies, packed.copies);
  if (copies == 1 || !parameter.is_floating_point()) return;
  RankGroup& holders = holders_[copies];
  if (holders == nullptr)
    holders = comm::split_group(*group_, group_->rank() / static_cast<int>(copies), group_->rank());
  // Neighbours are summed in one message, such as key and value.
  std::vector<int64_t> sizes;
  std::vector<bool> is_shared;
  for (size_t i = 0; i < cut.packed.size(); i++) {
    const int64_t size = placement.boxes[i].whole.sizes[cut.dim];
    const bool shares = cut.packed[i].copies > 1;
    if (!sizes.empty() && is_shared.back() == shares) {
      sizes.back() += size;
      continue;
    }
    sizes.push_back(size);
    is_shared.push_back(shares);
  }
  const bool is_trained = parameter.requires_grad();
  parameter.set_requires_grad(true);  // a frozen parameter may be trained later
  parameter.register_hook([sizes, is_shared, holders, dim = static_cast<int64_t>(cut.dim)](const at::Tensor& gradient) {
    if (sizes.size() == 1) return parallel_reduce(gradient, holders);
    std::vector<at::Tensor> parts = at::split_with_sizes(gradient, sizes, dim);
    for (size_t i = 0; i < parts.size(); i++)
      if (is_shared[i]) parts[i] = parallel_reduce(parts[i], holders);
    return at::cat(parts, dim);
  });
  parameter.set_requires_grad(is_trained);
}

}  // namespace accel::parallel
