// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor/split_parameters.hpp"

#include <numeric>

#include "base/error.hpp"
#include "parallel/regions/parallel_operators.hpp"

namespace accel::parallel {

tensor::Placement split_placement(std::vector<int64_t> shape, const DimensionCut& cut, int64_t rank, int64_t ranks,
                                  const std::string& axis) {
  tensor::Placement placement{std::move(shape), {}, axis};
  int64_t begin = 0, stored = 0;
  for (const PackedCut& packed : cut.packed) {
    const Share own = share_of(packed.size / packed.inseparable, rank / packed.copies, ranks / packed.copies);
    tensor::PlacedBox box = tensor::whole_placement(placement.shape).boxes.front();
    box.whole.offset[cut.dim] = begin + own.begin * packed.inseparable;
    box.whole.sizes[cut.dim] = own.size * packed.inseparable;
    box.local[cut.dim] = stored;
    box.counts = rank % packed.copies == 0;
    stored += box.whole.sizes[cut.dim];
    begin += packed.size;
    placement.boxes.push_back(std::move(box));
  }
  return placement;
}

std::vector<int64_t> packed_sizes(const SplitRule& rule, int64_t size, const std::string& path) {
  std::vector<int64_t> sizes = rule.packed.empty() ? std::vector<int64_t>{size} : rule.packed;
  if (rule.packed.size() == 1) {
    const int64_t number = rule.packed.front();
    require(size % number == 0, Status::kInvalidArgument, "rule '", rule.text, "' cuts the ", size, " features of '",
            path, "' into ", number, " packed tensors of one size; expected the sizes, such as (", size - 1, ",1)");
    sizes.assign(static_cast<size_t>(number), size / number);
  }
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  require(sum == size, Status::kInvalidArgument, "rule '", rule.text, "' packs ", sum, " features, and '", path,
          "' has ", size, "; expected sizes with this sum");
  return sizes;
}

}  // namespace accel::parallel
