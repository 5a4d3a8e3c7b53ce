// SPDX-License-Identifier: Apache-2.0
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

int64_t coordinate_along(const std::vector<MeshAxis>& grid, size_t axis, int64_t rank) {
  int64_t stride = 1;
  for (size_t i = axis + 1; i < grid.size(); i++) stride *= grid[i].size;
  return rank / stride % grid[axis].size;
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
    : ranks_(std::move(ranks)), grids_{std::move(axes)} {
  check(grids_.front());
}

void Mesh::add_grid(std::vector<MeshAxis> axes) {
  check(axes);
  grids_.push_back(std::move(axes));
}

void Mesh::check(const Grid& grid) const {
  require(!grid.empty(), Status::kInvalidArgument, "a mesh has no axis; expected at least one");
  const int64_t all = ranks_->size();
  int64_t places = 1;
  for (size_t i = 0; i < grid.size(); i++) {
    const auto& [name, size] = grid[i];
    require(!name.empty() && name.find_first_of(", ") == std::string::npos, Status::kInvalidArgument, "axis ", i,
            " of a mesh is called '", name, "'; expected a name without commas and blanks");
    const auto same_name = [&name = name](const MeshAxis& axis) { return axis.name == name; };
    require(std::count_if(grid.begin(), grid.end(), same_name) == 1, Status::kInvalidArgument,
            "a mesh has two axes called '", name, "'; expected different names");
    require(size >= 1, Status::kInvalidArgument, "the axis '", name, "' of a mesh has size ", size,
            "; expected at least 1");
    // Stops in time, so that the product does not overflow.
    places = size > all / places ? all + 1 : places * size;
  }
  require(places == all, Status::kInvalidArgument, "the sizes of a mesh are ", sizes_of(grid), " and there ",
          all == 1 ? "is 1 rank" : text("are ", all, " ranks"), "; expected sizes whose product is that number");
}

// An axis is that of the first grid which has its name.
Mesh::Selection Mesh::selection(const std::string& axes, bool may_be_empty) const {
  Selection selected;
  for (const Grid& grid : grids_) selected.emplace_back(grid.size(), false);
  bool is_empty = true;
  for (const std::string& name : split_text(axes)) {
    bool is_found = false;
    for (size_t grid = 0; grid < grids_.size() && !is_found; grid++)
      for (size_t axis = 0; axis < grids_[grid].size() && !is_found; axis++)
        if (grids_[grid][axis].name == name) selected[grid][axis] = is_found = true;
    require(is_found, Status::kNotFound, "the mesh has no axis '", name, "'; its axes are ", sizes_of(this->axes()));
    is_empty = false;
  }
  require(may_be_empty || !is_empty, Status::kInvalidArgument, "axes is empty; expected one or more of ",
          sizes_of(this->axes()));
  return selected;
}

bool Mesh::agree_along(const Selection& selected, int64_t rank, int64_t other) const {
  for (size_t grid = 0; grid < grids_.size(); grid++)
    for (size_t axis = 0; axis < grids_[grid].size(); axis++)
      if (selected[grid][axis] &&
          coordinate_along(grids_[grid], axis, rank) != coordinate_along(grids_[grid], axis, other))
        return false;
  return true;
}

bool Mesh::differ_within(size_t grid, const Selection& selected, int64_t rank, int64_t other) const {
  for (size_t axis = 0; axis < grids_[grid].size(); axis++)
    if (!selected[grid][axis] &&
        coordinate_along(grids_[grid], axis, rank) != coordinate_along(grids_[grid], axis, other))
      return false;
  return true;
}

std::vector<int64_t> Mesh::members(const Selection& selected, int64_t rank) const {
  std::vector<int64_t> found{rank};
  std::vector<bool> is_found(static_cast<size_t>(ranks_->size()), false);
  is_found[static_cast<size_t>(rank)] = true;
  const auto has_axis = [](const std::vector<bool>& axes) {
    return std::find(axes.begin(), axes.end(), true) != axes.end();
  };
  const auto add_neighbours = [&](size_t grid, int64_t of) {
    for (int64_t other = 0; other < ranks_->size(); other++)
      if (!is_found[static_cast<size_t>(other)] && differ_within(grid, selected, of, other)) {
        is_found[static_cast<size_t>(other)] = true;
        found.push_back(other);
      }
  };
  std::vector<size_t> grids;
  for (size_t grid = 0; grid < grids_.size(); grid++)
    if (has_axis(selected[grid])) grids.push_back(grid);
  // In one grid the first rank knows all; in several, those that it has found lead to others.
  for (size_t i = 0; i < (grids.size() > 1 ? found.size() : 1); i++)
    for (const size_t grid : grids) add_neighbours(grid, found[i]);
  std::sort(found.begin(), found.end());
  return found;
}

int64_t Mesh::size(const std::string& axes) const {
  return static_cast<int64_t>(members(selection(axes), ranks_->rank()).size());
}

int64_t Mesh::coordinate(const std::string& axes, int64_t rank) const {
  const std::vector<int64_t> ranks = members(selection(axes), rank);
  return std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
}

bool Mesh::is_first_along(const std::string& axes, const std::string& others) const {
  const Selection same = selection(others, /*may_be_empty=*/true);
  for (const int64_t rank : members(selection(axes, /*may_be_empty=*/true), ranks_->rank()))
    if (agree_along(same, rank, ranks_->rank())) return rank == ranks_->rank();
  return true;
}

bool Mesh::is_first_along_others(const std::string& others) const {
  std::string all;
  for (const MeshAxis& axis : axes()) all += (all.empty() ? "" : ",") + axis.name;
  return is_first_along(all, others);
}

const std::shared_ptr<Communicator>& Mesh::group(const std::string& axes) {
  const std::vector<int64_t> ranks = members(selection(axes), ranks_->rank());
  if (static_cast<int>(ranks.size()) == ranks_->size()) return ranks_;
  std::shared_ptr<Communicator>& group = groups_[ranks];
  if (group == nullptr) group = create_group(*ranks_, ranks);
  return group;
}

std::string Mesh::describe() const {
  std::string sizes, place;
  for (size_t i = 0; i < axes().size(); i++) {
    sizes += text(i == 0 ? "" : ", ", axes()[i].name, " ", axes()[i].size);
    place += text(i == 0 ? "" : ", ", coordinate_along(axes(), i, ranks_->rank()));
  }
  return sizes + "; this rank is at " + place;
}

}  // namespace accel::comm
