#include "comm/mesh.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "comm/group.hpp"

namespace accel::comm {
namespace {

std::string sizes_of(const std::vector<MeshAxis>& axes) {
  std::string line;
  for (const MeshAxis& axis : axes) line += text(line.empty() ? "" : " x ", axis.size, " (", axis.name, ")");
  return line;
}

}  // namespace

std::vector<MeshAxis> mesh_axes(const std::string& names, const std::vector<int64_t>& sizes) {
  const std::vector<std::string> each = split_text(names);
  require(each.size() == sizes.size(), Status::kInvalidArgument, "axes is '", names, "' and n_axes is ", sizes.size(),
          "; expected a size for each of the ", each.size(), " axes");
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < sizes.size(); i++) axes.push_back({each[i], sizes[i]});
  return axes;
}

Mesh::Mesh(std::shared_ptr<Communicator> ranks, std::vector<MeshAxis> axes)
    : ranks_(std::move(ranks)), axes_(std::move(axes)) {
  require(!axes_.empty(), Status::kInvalidArgument, "a mesh has no axis; expected at least one");
  const int64_t all = ranks_->size();
  int64_t places = 1;
  for (size_t i = 0; i < axes_.size(); i++) {
    const auto& [name, size] = axes_[i];
    require(!name.empty() && name.find_first_of(", ") == std::string::npos, Status::kInvalidArgument, "axis ", i,
            " of a mesh is called '", name, "'; expected a name without commas and blanks");
    const auto same_name = [&name = name](const MeshAxis& axis) { return axis.name == name; };
    require(std::count_if(axes_.begin(), axes_.end(), same_name) == 1, Status::kInvalidArgument,
            "a mesh has two axes called '", name, "'; expected different names");
    require(size >= 1, Status::kInvalidArgument, "the axis '", name, "' of a mesh has size ", size,
            "; expected at least 1");
    // Stops in time, so that the product does not overflow.
    places = size > all / places ? all + 1 : places * size;
  }
  require(places == all, Status::kInvalidArgument, "the sizes of a mesh are ", sizes_of(axes_), " and there ",
          all == 1 ? "is 1 rank" : text("are ", all, " ranks"), "; expected sizes whose product is that number");
}

std::vector<bool> Mesh::selection(const std::string& axes, bool may_be_empty) const {
  std::vector<bool> selected(axes_.size());
  for (const std::string& name : split_text(axes)) {
    const auto named = [&](const MeshAxis& axis) { return axis.name == name; };
    const auto axis = std::find_if(axes_.begin(), axes_.end(), named);
    require(axis != axes_.end(), Status::kNotFound, "the mesh has no axis '", name, "'; its axes are ",
            sizes_of(axes_));
    selected[static_cast<size_t>(axis - axes_.begin())] = true;
  }
  require(may_be_empty || std::find(selected.begin(), selected.end(), true) != selected.end(), Status::kInvalidArgument,
          "axes is empty; expected one or more of ", sizes_of(axes_));
  return selected;
}

int64_t Mesh::stride(size_t axis) const {
  int64_t stride = 1;
  for (size_t i = axis + 1; i < axes_.size(); i++) stride *= axes_[i].size;
  return stride;
}

int64_t Mesh::size(const std::string& axes) const {
  const std::vector<bool> selected = selection(axes);
  int64_t size = 1;
  for (size_t i = 0; i < axes_.size(); i++)
    if (selected[i]) size *= axes_[i].size;
  return size;
}

int64_t Mesh::coordinate(const std::string& axes, int64_t rank) const {
  const std::vector<bool> selected = selection(axes);
  int64_t coordinate = 0;
  for (size_t i = 0; i < axes_.size(); i++)
    if (selected[i]) coordinate = coordinate * axes_[i].size + coordinate_along(i, rank);
  return coordinate;
}

bool Mesh::is_first_along(const std::string& axes, const std::string& others) const {
  const std::vector<bool> wanted = selection(axes, /*may_be_empty=*/true);
  const std::vector<bool> left_out = selection(others, /*may_be_empty=*/true);
  for (size_t i = 0; i < axes_.size(); i++)
    if (wanted[i] && !left_out[i] && coordinate_along(i, ranks_->rank()) != 0) return false;
  return true;
}

bool Mesh::is_first_along_others(const std::string& others) const {
  std::string all;
  for (const MeshAxis& axis : axes_) all += (all.empty() ? "" : ",") + axis.name;
  return is_first_along(all, others);
}

const std::shared_ptr<Communicator>& Mesh::group(const std::string& axes) {
  const std::vector<bool> selected = selection(axes);
  std::vector<int64_t> members;
  for (int64_t rank = 0; rank < ranks_->size(); rank++) {
    bool is_member = true;
    for (size_t i = 0; i < axes_.size(); i++)
      is_member = is_member && (selected[i] || coordinate_along(i, rank) == coordinate_along(i, ranks_->rank()));
    if (is_member) members.push_back(rank);
  }
  if (static_cast<int>(members.size()) == ranks_->size()) return ranks_;
  std::shared_ptr<Communicator>& group = groups_[members];
  if (group == nullptr) group = create_group(*ranks_, members);
  return group;
}

std::string Mesh::describe() const {
  std::string sizes, place;
  for (size_t i = 0; i < axes_.size(); i++) {
    sizes += text(i == 0 ? "" : ", ", axes_[i].name, " ", axes_[i].size);
    place += text(i == 0 ? "" : ", ", coordinate_along(i, ranks_->rank()));
  }
  return sizes + "; this rank is at " + place;
}

}  // namespace accel::comm
