// SPDX-License-Identifier: Apache-2.0
#include "parallel/placed_parameters.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "comm/collectives.hpp"
#include "nn/module_walks.hpp"
#include "optim/clip.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

constexpr const char* kStageAxis = "pipeline";
constexpr const char* kModelAxes = "pipeline,tensor";

// The axes that cut any of the parameters; `placements` finds the placement of a parameter.
template <typename Placements>
std::string axes_in(const Placements& placements, const std::vector<at::Tensor>& parameters) {
  std::vector<std::string> known;
  std::string axes;
  for (const at::Tensor& parameter : parameters) {
    const tensor::PlacementPtr placement = placements.find(parameter);
    if (placement == nullptr || std::find(known.begin(), known.end(), placement->axes) != known.end()) continue;
    known.push_back(placement->axes);
    axes = tensor::join_axes(axes, placement->axes);
  }
  return axes;
}

// A table of the boxes of a rank, of equal size on all ranks: the number of boxes and of elements, then each box.
at::Tensor describe(const tensor::Placement& placement, size_t boxes) {
  const size_t dimensions = placement.shape.size();
  std::vector<int64_t> table(2 + boxes * dimensions * 3, 0);
  table[0] = static_cast<int64_t>(placement.boxes.size());
  auto next = table.begin() + 2;
  for (const tensor::PlacedBox& box : placement.boxes) {
    table[1] += c10::multiply_integers(box.whole.sizes);
    for (const auto* const numbers : {&box.whole.offset, &box.whole.sizes, &box.local})
      next = std::copy(numbers->begin(), numbers->end(), next);
  }
  return at::tensor(table, at::kLong);
}

struct RankPart {
  std::vector<tensor::PlacedBox> boxes;
  std::vector<int64_t> sizes;  // of the tensor that the rank stores
  int64_t elements = 0;
};

RankPart read_table(const at::Tensor& row, size_t dimensions) {
  const int64_t* next = row.const_data_ptr<int64_t>();
  RankPart part;
  part.boxes.resize(static_cast<size_t>(*next++));
  part.elements = *next++;
  for (tensor::PlacedBox& box : part.boxes)
    for (auto* const numbers : {&box.whole.offset, &box.whole.sizes, &box.local}) {
      numbers->assign(next, next + dimensions);
      next += dimensions;
    }
  part.sizes = tensor::Placement{std::vector<int64_t>(dimensions, 0), part.boxes, ""}.stored_sizes();
  return part;
}

// The parts of all ranks, in their order.
std::vector<RankPart> parts_of_ranks(const tensor::Placement& placement, comm::Communicator& ranks) {
  const int64_t own = static_cast<int64_t>(placement.boxes.size());
  const at::Tensor counts = comm::gather_rows(ranks, at::tensor({own}, at::kLong));
  const auto most = static_cast<size_t>(counts.max().item<int64_t>());
  const at::Tensor tables = comm::gather_rows(ranks, describe(placement, most)).contiguous();
  std::vector<RankPart> parts;
  for (int64_t rank = 0; rank < ranks.size(); rank++) parts.push_back(read_table(tables[rank], placement.shape.size()));
  return parts;
}

// Whether the elements of the ranks, each with padding to `most`, are those of the whole one after the other.
bool are_rows_in_order(const std::vector<RankPart>& parts, const std::vector<int64_t>& shape, int64_t most) {
  if (shape.empty()) return false;
  const int64_t row = c10::multiply_integers(shape.begin() + 1, shape.end());
  int64_t begin = 0;
  for (const RankPart& part : parts) {
    if (part.elements > 0) {
      const tensor::Box& box = part.boxes.front().whole;
      const bool has_whole_rows =
          part.boxes.size() == 1 && std::equal(shape.begin() + 1, shape.end(), box.sizes.begin() + 1);
      if (!has_whole_rows || box.offset[0] * row != begin) return false;
    }
    begin += most;
  }
  return true;
}

bool counts_all(const tensor::Placement& placement) {
  return std::all_of(placement.boxes.begin(), placement.boxes.end(),
                     [](const tensor::PlacedBox& box) { return box.counts; });
}

// A box of a stored parameter, with its gradient. Both share memory with the parameter.
at::Tensor part_with_gradient(const at::Tensor& parameter, const tensor::PlacedBox& box) {
  const tensor::Box local{box.local, box.whole.sizes};
  at::Tensor part = tensor::narrow(parameter.detach(), local);
  if (parameter.grad().defined()) part.mutable_grad() = tensor::narrow(parameter.grad(), local);
  return part;
}

}  // namespace

at::Tensor gather_parts(const at::Tensor& part, const tensor::Placement& placement, comm::Communicator& ranks) {
  const at::NoGradGuard no_grad;
  if (ranks.size() == 1) return part;
  const std::vector<RankPart> parts = parts_of_ranks(placement, ranks);
  int64_t most = 0;
  for (const RankPart& one : parts) most = std::max(most, one.elements);
  at::Tensor padded = at::empty({most}, part.options().requires_grad(false));
  padded.narrow(0, 0, part.numel()).copy_(part.reshape({-1}));
  padded.narrow(0, part.numel(), most - part.numel()).zero_();
  const at::Tensor all = at::empty({ranks.size(), most}, padded.options());
  ranks.all_gather(padded, all);
  const int64_t elements = c10::multiply_integers(placement.shape);
  if (are_rows_in_order(parts, placement.shape, most))
    return all.view({-1}).narrow(0, 0, elements).view(placement.shape);
  at::Tensor whole = at::empty(placement.shape, padded.options());
  for (size_t rank = 0; rank < parts.size(); rank++) {
    const at::Tensor stored =
        all[static_cast<int64_t>(rank)].narrow(0, 0, parts[rank].elements).view(parts[rank].sizes);
    for (const tensor::PlacedBox& box : parts[rank].boxes)
      tensor::narrow(whole, box.whole).copy_(tensor::narrow(stored, {box.local, box.whole.sizes}));
  }
  return whole;
}

void PlacedParameters::add(const ParallelModelPtr& model) {
  entries_.erase(
      std::remove_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.model.expired(); }),
      entries_.end());
  nn::Placements placements = nn::placements(*model->module());
  const bool is_in_stages = model->pipeline() != nullptr;
  if (placements.empty() && !is_in_stages) return;
  std::string axes = axes_in(placements, model->module()->parameters());
  if (is_in_stages) axes = axes_of_stages(axes);
  entries_.push_back({model, std::move(placements), std::move(axes), mesh_.lock(), is_in_stages});
}

// Stages may have no parameters, or none that other axes cut.
std::string PlacedParameters::axes_of_stages(const std::string& own) const {
  std::string axes = kStageAxis;
  const c10::IValue all = comm::gather_object(*mesh().group(kStageAxis), own);
  for (const c10::IValue& others : tree::sequence_items(all))
    for (const std::string& axis : split_text(others.toStringRef()))
      if (!tensor::has_any_axis(axes, axis)) axes = tensor::join_axes(axes, axis);
  return axes;
}

std::shared_ptr<comm::Mesh> PlacedParameters::find_mesh() const {
  return entries_.empty() ? mesh_.lock() : entries_.front().mesh;
}

comm::Mesh& PlacedParameters::mesh() const {
  const auto mesh = find_mesh();
  require(mesh != nullptr, Status::kInvalidState,
          "the state of these parameters is gone; expected one that lives as long as they are trained");
  return *mesh;  // the state or an entry has it
}

std::vector<ParallelModelPtr> PlacedParameters::models() const {
  std::vector<ParallelModelPtr> models;
  for (const Entry& entry : entries_)
    if (auto model = entry.model.lock()) models.push_back(std::move(model));
  return models;
}

tensor::PlacementPtr PlacedParameters::find(const at::Tensor& parameter) const {
  for (const Entry& entry : entries_)
    if (auto placement = entry.placements.find(parameter); placement != nullptr && !entry.model.expired())
      return placement;
  return nullptr;
}

std::vector<ParallelModelPtr> PlacedParameters::models_of(const std::vector<at::Tensor>& parameters) const {
  std::vector<ParallelModelPtr> models;
  for (const Entry& entry : entries_) {
    const auto has = [&](const at::Tensor& parameter) { return entry.placements.find(parameter) != nullptr; };
    if (!std::any_of(parameters.begin(), parameters.end(), has)) continue;
    if (auto model = entry.model.lock()) models.push_back(std::move(model));
  }
  return models;
}

std::string PlacedParameters::axes_of(const std::vector<at::Tensor>& parameters) const {
  std::string axes = axes_in(*this, parameters);
  for (const Entry& entry : entries_)
    if (entry.is_in_stages && !entry.model.expired()) axes = tensor::join_axes(axes, entry.axes);
  return axes;
}

bool PlacedParameters::have_parts(const std::vector<at::Tensor>& parameters) const {
  const std::vector<std::string> axes = split_text(axes_in(*this, parameters));
  return std::any_of(axes.begin(), axes.end(), [](const std::string& axis) { return axis != kStageAxis; });
}

std::string PlacedParameters::axes() const {
  std::string axes;
  for (const Entry& entry : entries_)
    if (!entry.model.expired()) axes = tensor::join_axes(axes, entry.axes);
  return axes;
}

bool PlacedParameters::describe_parts(const nn::Module& module, const std::string& axes) const {
  const auto mesh = find_mesh();
  std::vector<std::string> shared = split_text(axes);
  const auto is_one = [&](const std::string& axis) { return mesh == nullptr || mesh->size(axis) == 1; };
  shared.erase(std::remove_if(shared.begin(), shared.end(), is_one), shared.end());
  if (shared.empty()) return true;
  const nn::Placements placements = nn::placements(module);
  const std::vector<at::Tensor> parameters = module.parameters();
  return std::all_of(shared.begin(), shared.end(), [&](const auto& axis) {
    return placements.have_axis(axis) || tensor::has_any_axis(axes_in(*this, parameters), axis) ||
           are_in_models(parameters, axis);
  });
}

bool PlacedParameters::are_in_models(const std::vector<at::Tensor>& parameters, const std::string& axis) const {
  std::unordered_set<const at::TensorImpl*> known;
  for (const Entry& entry : entries_) {
    const auto model = tensor::has_any_axis(entry.axes, axis) ? entry.model.lock() : nullptr;
    if (model == nullptr) continue;
    for (const at::Tensor& parameter : model->module()->parameters()) known.insert(parameter.unsafeGetTensorImpl());
  }
  return std::all_of(parameters.begin(), parameters.end(),
                     [&](const at::Tensor& parameter) { return known.count(parameter.unsafeGetTensorImpl()) > 0; });
}

std::string PlacedParameters::axes_of_models() const {
  const auto mesh = find_mesh();
  return mesh != nullptr && mesh->size(kModelAxes) > 1 ? kModelAxes : "";
}

bool PlacedParameters::is_first(const tensor::Placement& placement) const {
  const bool counts_any = std::any_of(placement.boxes.begin(), placement.boxes.end(),
                                      [](const tensor::PlacedBox& box) { return box.counts; });
  return counts_any && mesh().is_first_along_others(placement.axes);
}

at::Tensor PlacedParameters::gather(const at::Tensor& part, const tensor::Placement& placement) const {
  return gather_parts(part, placement, *mesh().group(placement.axes));
}

bool PlacedParameters::any_rank(const std::string& axes, bool flag) const {
  return axes.empty() ? flag : mesh().group(axes)->any_rank(flag);
}

at::Tensor PlacedParameters::any_rank(const std::string& axes, const at::Tensor& flag, c10::Device device) const {
  if (axes.empty()) return flag;
  comm::Communicator& ranks = *mesh().group(axes);
  const auto& devices = ranks.group().devices;
  const bool is_sent_there = std::find(devices.begin(), devices.end(), device.type()) != devices.end();
  const c10::Device place = is_sent_there ? device : ranks.device();
  const at::Tensor votes = flag.reshape({1}).to(place, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  ranks.all_reduce(votes, comm::ReduceOp::kMax);
  return votes.squeeze(0);
}

at::Tensor PlacedParameters::clip_gradients_by_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                                                    double norm_type) const {
  for (const ParallelModelPtr& model : models_of(parameters)) model->finish_step();
  const std::string axes = axes_of(parameters);
  if (axes.empty()) return optim::clip_gradients_by_norm(parameters, max_norm, norm_type);
  // Ranks that differ along axes that do not cut a parameter have copies of it, of which the first one counts.
  std::vector<at::Tensor> counted, copies;
  std::map<std::string, bool> counts;  // by the axes that cut a parameter
  for (const at::Tensor& parameter : parameters) {
    const tensor::PlacementPtr placement = find(parameter);
    const std::string cut = placement == nullptr ? "" : placement->axes;
    const auto [known, is_new] = counts.try_emplace(cut, false);
    if (is_new) known->second = mesh().is_first_along(axes, cut);
    if (placement == nullptr || counts_all(*placement)) {
      (known->second ? counted : copies).push_back(parameter);
      continue;
    }
    for (const tensor::PlacedBox& box : placement->boxes)
      (known->second && box.counts ? counted : copies).push_back(part_with_gradient(parameter, box));
  }
  comm::Communicator& ranks = *mesh().group(axes);
  return optim::clip_shared_gradients_by_norm(
      counted, copies, max_norm, norm_type, [&ranks](const at::Tensor& partial, bool largest) {
        const at::Tensor sent = partial.to(ranks.device());
        ranks.all_reduce(sent, largest ? comm::ReduceOp::kMax : comm::ReduceOp::kSum);
        return sent;
      });
}

void PlacedParameters::clip_gradients_by_value(const std::vector<at::Tensor>& parameters, double clip_value) const {
  for (const ParallelModelPtr& model : models_of(parameters)) model->finish_step();
  optim::clip_gradients_by_value(parameters, clip_value);
}

}  // namespace accel::parallel
