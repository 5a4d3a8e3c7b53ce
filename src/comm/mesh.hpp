// SPDX-License-Identifier: Apache-2.0
// Device mesh: the ranks of a job as a grid whose axes are kinds of parallelism, as PyTorch's
// torch.distributed.device_mesh.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
};
// "replica,expert" with a size for each.
std::vector<MeshAxis> mesh_axes(const std::string& names, const std::vector<int64_t>& sizes);

// The grid is row-major: neighbours along the last axis have consecutive ranks. Axes are given as text: "shard", or
// several, "replicate,shard", which are flattened into one in the order of the mesh.
class Mesh {
 public:
  // The sizes multiply to the number of ranks.
  Mesh(std::shared_ptr<Communicator> ranks, std::vector<MeshAxis> axes);

  // Another grid over the same ranks, whose axes have names of their own, but for those that are the same in both.
  // Axes of several grids together are those along which ranks can be reached by steps along any of them.
  void add_grid(std::vector<MeshAxis> axes);

  const std::vector<MeshAxis>& axes() const { return grids_.front(); }  // of the first grid
  int64_t size(const std::string& axes) const;
  int64_t coordinate(const std::string& axes) const { return coordinate(axes, ranks_->rank()); }
  int64_t coordinate(const std::string& axes, int64_t rank) const;
  // Whether this rank is the first of those that differ from it along `axes`, and have its coordinates along `others`.
  // Both may be empty.
  bool is_first_along(const std::string& axes, const std::string& others) const;
  // Answers this along all axes of the mesh.
  bool is_first_along_others(const std::string& others) const;
  // The group of the ranks that differ from this one only in these axes, ordered by coordinate. The first call with
  // these axes is collective among its members; later ones return the same group.
  const std::shared_ptr<Communicator>& group(const std::string& axes);

  std::string describe() const;  // "replicate 2, tensor 4; this rank is at 0, 3"

 private:
  using Grid = std::vector<MeshAxis>;
  using Selection = std::vector<std::vector<bool>>;  // of the axes of each grid

  void check(const Grid& grid) const;
  Selection selection(const std::string& axes, bool may_be_empty = false) const;
  // Whether two ranks have the same coordinates along all axes that are selected.
  bool agree_along(const Selection& selected, int64_t rank, int64_t other) const;
  // Whether they have the same along all axes of the grid that are not.
  bool differ_within(size_t grid, const Selection& selected, int64_t rank, int64_t other) const;
  // The ranks that differ from this one in these axes only, in ascending order.
  std::vector<int64_t> members(const Selection& selected, int64_t rank) const;

  std::shared_ptr<Communicator> ranks_;
  std::vector<Grid> grids_;                                               // the first one is the mesh as it was made
  std::map<std::vector<int64_t>, std::shared_ptr<Communicator>> groups_;  // by their ranks
};

}  // namespace accel::comm
