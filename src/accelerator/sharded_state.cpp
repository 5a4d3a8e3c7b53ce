#include "accelerator/sharded_state.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/training_state.hpp"
#include "tensor/file_memory.hpp"
#include "tensor/tensor_piece.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

using parallel::ParameterShard;

c10::IValue piece_of_shard(const at::Tensor& data, const ParameterShard& shard) {
  std::vector<int64_t> shape = data.sizes().vec(), offset(shape.size(), 0);
  shape[0] = shard.shape[0];
  offset[0] = shard.offset[0];
  return tensor::piece_value(data, std::move(shape), std::move(offset));
}

// The box that this rank has of a tensor, whole or saved, of a parameter: nothing for values that are loaded as they
// are.
std::optional<tensor::Box> box_of_shard(const c10::IValue& value, const ParameterShard& shard,
                                        const at::Tensor& parameter, const std::string& name) {
  if (!value.isTensor() && tensor::saved_tensor_of(value) == nullptr) return std::nullopt;
  std::vector<int64_t> sizes = tensor::shape_of_saved(value, name);
  if (sizes.size() != shard.shape.size() || sizes.empty()) return std::nullopt;  // a number, such as the step
  require(sizes == shard.shape, Status::kShapeMismatch, "'", name, "' has the shape ", c10::IntArrayRef(sizes),
          "; expected ", c10::IntArrayRef(shard.shape));
  tensor::Box box{std::vector<int64_t>(sizes.size(), 0), sizes};
  box.offset[0] = shard.offset[0];
  box.sizes[0] = parameter.size(0);
  return box;
}

// The box where there may be no shard: saved tensors are whole then.
std::optional<tensor::Box> box_of_tensor(const c10::IValue& value, const ParameterShard* shard,
                                         const at::Tensor& parameter, const std::string& name) {
  if (shard != nullptr) return box_of_shard(value, *shard, parameter, name);
  if (tensor::saved_tensor_of(value) == nullptr) return std::nullopt;
  const std::vector<int64_t> sizes = tensor::shape_of_saved(value, name);
  return tensor::Box{std::vector<int64_t>(sizes.size(), 0), sizes};
}

c10::IValue read_own(const c10::IValue& value, const std::optional<tensor::Box>& box, const std::string& name) {
  return box ? tensor::read_box(value, *box, name) : value;
}

template <typename Change>
c10::IValue change_members(const c10::IValue& map, const Change& change) {
  auto changed = tree::new_map();
  for (const auto& member : map.toGenericDict()) changed.insert(member.key(), change(member.key(), member.value()));
  return changed;
}

struct OwnedParameter {
  at::Tensor parameter;
  const ParameterShard* shard = nullptr;
};

bool is_sharded_like(const c10::IValue& value, const OwnedParameter& owned) {
  return owned.shard != nullptr && value.isTensor() && value.toTensor().defined() &&
         value.toTensor().dim() == owned.parameter.dim() && value.toTensor().size(0) == owned.parameter.size(0);
}

// By their numbers in the state dict.
std::vector<OwnedParameter> parameters_of(const optim::Optimizer& optimizer,
                                          const std::vector<parallel::ParallelModelPtr>& models) {
  std::vector<OwnedParameter> parameters;
  for (const optim::ParameterGroup& group : optimizer.groups())
    for (const at::Tensor& parameter : group.parameters) {
      OwnedParameter owned{parameter};
      for (const auto& model : models)
        if (owned.shard == nullptr) owned.shard = model->shard_of(parameter);
      parameters.push_back(owned);
    }
  return parameters;
}

// Changes the entries of each parameter's state: change(entry, parameter, name).
template <typename Change>
c10::IValue change_optimizer_state(const c10::IValue& state, const std::vector<OwnedParameter>& parameters,
                                   const Change& change) {
  return change_members(state, [&](const c10::IValue& section, const c10::IValue& content) {
    if (!section.isString() || section.toStringRef() != "state" || !content.isGenericDict()) return content;
    return change_members(content, [&](const c10::IValue& number, const c10::IValue& entries) {
      const size_t index = number.isInt() ? static_cast<size_t>(number.toInt()) : std::stoul(number.toStringRef());
      if (index >= parameters.size() || !entries.isGenericDict()) return entries;
      return change_members(entries, [&](const c10::IValue& key, const c10::IValue& value) {
        const std::string name = tree::path_below(std::to_string(index), key.isString() ? key.toStringRef() : "");
        return change(value, parameters[index], name);
      });
    });
  });
}

}  // namespace

c10::IValue ModelState::state_dict() const {
  const nn::Module& module = *model_->module();
  if (!model_->is_sharded()) return checkpoint::model_state(module.state_dict());
  model_->finish_step();
  auto state = tree::new_map();
  for (const auto& [name, tensor] : module.state_dict()) {
    const ParameterShard* const shard = model_->shard_of(module.find_tensor(name));
    state.insert(name, shard == nullptr ? c10::IValue(tensor) : piece_of_shard(tensor, *shard));
  }
  return state;
}

template <typename Visit>
void ModelState::for_each_own(const c10::IValue& state, const Visit& visit) const {
  const nn::Module& module = *model_->module();
  std::unordered_map<std::string, at::Tensor> own;
  for (const auto& [name, tensor] : module.state_dict()) own.emplace(name, module.find_tensor(name));
  for (const auto& member : state.toGenericDict()) {
    const std::string& name = member.key().toStringRef();
    const auto found = own.find(name);
    const at::Tensor parameter = found == own.end() ? at::Tensor() : found->second;
    const ParameterShard* const shard = parameter.defined() ? model_->shard_of(parameter) : nullptr;
    visit(name, member.value(), box_of_tensor(member.value(), shard, parameter, name));
  }
}

void ModelState::check_pieces(const c10::IValue& state) const {
  for_each_own(state, [](const std::string& name, const c10::IValue& value, const std::optional<tensor::Box>& box) {
    if (box) tensor::check_box(value, *box, name);
  });
}

void ModelState::load_state_dict(const c10::IValue& state) {
  nn::Module& module = *model_->module();
  if (!model_->is_sharded()) {
    module.load_state_dict(checkpoint::model_tensors(state));
    return;
  }
  model_->finish_step();
  nn::NamedTensors tensors;
  for_each_own(state, [&](const std::string& name, const c10::IValue& value, const std::optional<tensor::Box>& box) {
    const c10::IValue own = read_own(value, box, name);
    require(own.isTensor(), Status::kTypeMismatch, "'", name, "' is of kind ", tree::kind_name(own),
            "; expected a tensor");
    tensors.emplace_back(name, own.toTensor());
  });
  module.load_state_dict(tensors);
}

void ModelState::load_rows(const c10::IValue& state) {
  if (model_->is_sharded()) model_->finish_step();
  model_->module()->load_state_dict(checkpoint::model_tensors(state));
}

void OptimizerState::finish_steps() const {
  for (const auto& model : models_) model->finish_step();
}

bool OptimizerState::takes_pieces() const { return first_sharded(models_) != nullptr; }

c10::IValue OptimizerState::state_dict() const {
  if (!takes_pieces()) return optimizer_->state_dict();
  finish_steps();
  return change_optimizer_state(optimizer_->state_dict(), parameters_of(*optimizer_, models_),
                                [](const c10::IValue& value, const OwnedParameter& owned, const std::string&) {
                                  return is_sharded_like(value, owned) ? piece_of_shard(value.toTensor(), *owned.shard)
                                                                       : value;
                                });
}

void OptimizerState::load_state_dict(const c10::IValue& state) {
  if (!takes_pieces()) return optimizer_->load_state_dict(state);
  finish_steps();
  optimizer_->load_state_dict(
      change_optimizer_state(state, parameters_of(*optimizer_, models_),
                             [](const c10::IValue& value, const OwnedParameter& owned, const std::string& name) {
                               return read_own(value, box_of_tensor(value, owned.shard, owned.parameter, name), name);
                             }));
}

void OptimizerState::check_pieces(const c10::IValue& state) const {
  change_optimizer_state(state, parameters_of(*optimizer_, models_),
                         [](const c10::IValue& value, const OwnedParameter& owned, const std::string& name) {
                           if (const auto box = box_of_tensor(value, owned.shard, owned.parameter, name))
                             tensor::check_box(value, *box, name);
                           return value;
                         });
}

void OptimizerState::check_rows(const c10::IValue& state) const {
  if (!optimizer_->is_elementwise()) return;  // whose states have shapes of their own, and are not sharded
  change_optimizer_state(state, parameters_of(*optimizer_, models_),
                         [](const c10::IValue& value, const OwnedParameter& owned, const std::string& name) {
                           const bool is_like_parameter = !value.isTensor() || value.toTensor().dim() == 0 ||
                                                          value.toTensor().sizes() == owned.parameter.sizes();
                           require(is_like_parameter, Status::kShapeMismatch, "'", name, "' has the shape ",
                                   value.toTensor().sizes(), "; expected ", owned.parameter.sizes(),
                                   ", the rows of this rank");
                           return value;
                         });
}

void OptimizerState::load_rows(const c10::IValue& state) {
  if (takes_pieces()) finish_steps();
  optimizer_->load_state_dict(state);
}

std::vector<checkpoint::NamedGroup> named_groups(const optim::Optimizer& optimizer,
                                                 const std::vector<nn::ModulePtr>& models) {
  std::unordered_map<const c10::TensorImpl*, std::vector<std::string>> names;
  for (const nn::ModulePtr& model : models)
    for (const auto& [name, tensor] : model->state_dict())
      names[model->find_tensor(name).unsafeGetTensorImpl()].push_back(name);
  std::vector<checkpoint::NamedGroup> groups;
  for (const optim::ParameterGroup& group : optimizer.groups()) {
    checkpoint::NamedGroup& named = groups.emplace_back();
    for (const at::Tensor& parameter : group.parameters)
      named.push_back({names[parameter.unsafeGetTensorImpl()], !parameter.requires_grad()});
  }
  return groups;
}

namespace {

at::Tensor kept_in(const std::string& folder, const at::Tensor& tensor) {
  if (!folder.empty() && tensor.nbytes() >= tensor::kLeastFileBytes) try {
      return tensor::file_zeros(folder, tensor.sizes(), tensor.scalar_type()).copy_(tensor);
    } catch (const Error&) {  // such as a full disk; the write of the checkpoint will say so
    }
  return tensor.cpu();
}

}  // namespace

c10::IValue gather_pieces(const c10::IValue& state, const parallel::ParallelModel& model, bool keep,
                          const std::string& folder) {
  return tree::map_leaves(state, [&](const c10::IValue& leaf) -> c10::IValue {
    const tensor::TensorPiece* const piece = tensor::piece_of(leaf);
    if (piece == nullptr) return leaf;
    const at::Tensor whole = model.gather_rows(piece->data, piece->global_shape[0]);
    return keep ? c10::IValue(kept_in(folder, whole)) : c10::IValue();
  });
}

const parallel::ParallelModel* first_sharded(const std::vector<parallel::ParallelModelPtr>& models) {
  const auto found = std::find_if(models.begin(), models.end(), [](const auto& model) { return model->is_sharded(); });
  return found == models.end() ? nullptr : found->get();
}

c10::IValue form_to_save(const c10::IValue& state, const parallel::ParallelModel* sharded, bool whole, bool keep,
                         const std::string& folder) {
  if (sharded == nullptr) return state;
  if (whole) return gather_pieces(state, *sharded, keep, folder);
  if (sharded->saves_shards()) return state;
  return tree::map_leaves(
      state, [](const c10::IValue& leaf) { return tensor::piece_of(leaf) == nullptr ? leaf : c10::IValue(); });
}

c10::IValue rows_of_pieces(const c10::IValue& state) {
  return tree::map_leaves(state, [](const c10::IValue& leaf) {
    const tensor::TensorPiece* const piece = tensor::piece_of(leaf);
    return piece == nullptr ? leaf : c10::IValue(piece->data);
  });
}

c10::IValue with_rows(const c10::IValue& state, const c10::IValue& rows) {
  if (!rows.isGenericDict()) return rows;
  const auto former = state.toGenericDict();
  return change_members(rows, [&](const c10::IValue& name, const c10::IValue& value) {
    const auto found = former.find(name);
    const tensor::TensorPiece* const piece = found == former.end() ? nullptr : tensor::piece_of(found->value());
    if (piece == nullptr || !value.isTensor() || value.toTensor().sizes() != piece->data.sizes()) return value;
    return tensor::piece_value(value.toTensor(), piece->global_shape, piece->offset);
  });
}

}  // namespace accel::accelerator
