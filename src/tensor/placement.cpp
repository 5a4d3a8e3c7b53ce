// SPDX-License-Identifier: Apache-2.0
#include "tensor/placement.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/split_text.hpp"

namespace accel::tensor {
namespace {

// The part of a placed box that is inside of `part`, a box of the stored tensor. It may be empty.
PlacedBox intersect(const PlacedBox& placed, const Box& part) {
  PlacedBox common = placed;
  for (size_t i = 0; i < part.sizes.size(); i++) {
    const int64_t begin = std::max(placed.local[i], part.offset[i]);
    const int64_t end = std::min(placed.local[i] + placed.whole.sizes[i], part.offset[i] + part.sizes[i]);
    const int64_t skipped = std::min(begin - placed.local[i], placed.whole.sizes[i]);
    common.whole.offset[i] += skipped;
    common.whole.sizes[i] = std::max<int64_t>(end - begin, 0);
    common.local[i] = std::max<int64_t>(begin - part.offset[i], 0);
  }
  return common;
}

}  // namespace

std::vector<int64_t> whole_offset(size_t dimensions) { return std::vector<int64_t>(dimensions, 0); }

bool is_empty(const Box& box) { return std::find(box.sizes.begin(), box.sizes.end(), 0) != box.sizes.end(); }

std::vector<int64_t> Placement::stored_sizes() const {
  std::vector<int64_t> sizes(shape.size(), 0);
  for (const PlacedBox& box : boxes)
    for (size_t i = 0; i < sizes.size(); i++) sizes[i] = std::max(sizes[i], box.local[i] + box.whole.sizes[i]);
  return sizes;
}

Placement Placement::cut(const Box& part, const std::string& further_axes) const {
  require(part.offset.size() == shape.size() && part.sizes.size() == shape.size(), Status::kShapeMismatch,
          "a part has ", part.offset.size(), " dimensions and the tensor ", shape.size(), "; expected as many in both");
  const std::vector<int64_t> stored = stored_sizes();
  bool is_inside = true;
  for (size_t i = 0; i < stored.size(); i++)
    is_inside = is_inside && part.offset[i] >= 0 && part.sizes[i] >= 0 && part.offset[i] <= stored[i] - part.sizes[i];
  require(is_inside, Status::kShapeMismatch, "a part of ", part.sizes, " elements at ", part.offset,
          " is not inside of a tensor of shape ", stored);
  Placement result{shape, {}, join_axes(axes, further_axes), summed_axes};
  for (const PlacedBox& placed : boxes)
    if (PlacedBox common = intersect(placed, part); !is_empty(common.whole)) result.boxes.push_back(std::move(common));
  if (result.boxes.empty()) result.boxes.push_back(intersect(boxes.front(), part));  // its shape is still known
  return result;
}

PlacementPtr box_placement(std::vector<int64_t> shape, const Box& part, const std::string& axes) {
  return std::make_shared<const Placement>(whole_placement(std::move(shape)).cut(part, axes));
}

Placement whole_placement(std::vector<int64_t> shape) {
  PlacedBox all{{whole_offset(shape.size()), shape}, whole_offset(shape.size())};
  return {std::move(shape), {std::move(all)}, ""};
}

bool has_any_axis(const std::string& some, const std::string& others) {
  const std::vector<std::string> axes = split_text(some), wanted = split_text(others);
  return std::any_of(wanted.begin(), wanted.end(),
                     [&](const std::string& axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); });
}

std::string join_axes(const std::string& some, const std::string& more) {
  if (some.empty() || more.empty()) return some.empty() ? more : some;
  return some + "," + more;
}

}  // namespace accel::tensor
