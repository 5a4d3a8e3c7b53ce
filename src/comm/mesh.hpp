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

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int64_t size(const std::string& axes) const;
  int64_t coordinate(const std::string& axes) const { return coordinate(axes, ranks_->rank()); }
  int64_t coordinate(const std::string& axes, int64_t rank) const;
  // Whether this rank has the coordinate 0 along each of `axes` that is not among `others`. Both may be empty.
  bool is_first_along(const std::string& axes, const std::string& others) const;
  // The same along each axis of the mesh that is not among `others`.
  bool is_first_along_others(const std::string& others) const;
  // The group of the ranks that differ from this one only in these axes, ordered by coordinate. The first call with
  // these axes is collective among its members; later ones return the same group.
  const std::shared_ptr<Communicator>& group(const std::string& axes);

  std::string describe() const;  // "replicate 2, tensor 4; this rank is at 0, 3"

 private:
  std::vector<bool> selection(const std::string& axes, bool may_be_empty = false) const;
  int64_t stride(size_t axis) const;
  int64_t coordinate_along(size_t axis, int64_t rank) const { return rank / stride(axis) % axes_[axis].size; }

  std::shared_ptr<Communicator> ranks_;
  std::vector<MeshAxis> axes_;
  std::map<std::vector<int64_t>, std::shared_ptr<Communicator>> groups_;  // by their ranks
};

}  // namespace accel::comm
