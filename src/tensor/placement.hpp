// SPDX-License-Identifier: Apache-2.0
// Placement: which part of a tensor this rank stores, while ranks along some axes of the mesh store other parts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace accel::tensor {

// A range of indices in each dimension.
struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> sizes;
};
std::vector<int64_t> whole_offset(size_t dimensions);  // zeros
bool is_empty(const Box& box);

// A box of the whole tensor, and the index of its first element in the tensor that the rank stores.
struct PlacedBox {
  Box whole;
  std::vector<int64_t> local;
  bool counts = true;  // of several ranks along the axes that store the same box, one saves it and has it in norms
};

struct Placement {
  std::vector<int64_t> shape;    // of the whole tensor
  std::vector<PlacedBox> boxes;  // together they are the tensor that this rank stores; none: it stores nothing of it
  std::string axes;              // of the mesh, separated by commas: ranks along them store other parts
  std::string summed_axes = {};  // ranks along them compute terms of the gradient, whose sum is that of the tensor

  // The sizes of the tensor that this rank stores.
  std::vector<int64_t> stored_sizes() const;
  // The placement of a part of what is stored: `part` is a box of the stored tensor, and `further_axes` are those whose
  // ranks store the other parts of it. So a tensor that is cut twice has a placement in the whole.
  Placement cut(const Box& part, const std::string& further_axes) const;
};
using PlacementPtr = std::shared_ptr<const Placement>;

// The placement of a tensor that each rank stores as a whole.
Placement whole_placement(std::vector<int64_t> shape);
// The placement of one box.
PlacementPtr box_placement(std::vector<int64_t> shape, const Box& part, const std::string& axes);
// Whether one of the axes is in both lists.
bool has_any_axis(const std::string& some, const std::string& others);
std::string join_axes(const std::string& some, const std::string& more);

}  // namespace accel::tensor
