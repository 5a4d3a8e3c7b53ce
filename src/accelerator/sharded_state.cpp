#include "accelerator/sharded_state.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
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

bool is_sharded_like(const c10::IValue& value, const at::Tensor& parameter) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().dim() == parameter.dim() &&
         value.toTensor().size(0) == parameter.size(0);
}

// The rows of a whole tensor, or of a saved one, that this rank has of the parameter.
c10::IValue rows_of_shard(const c10::IValue& value, const ParameterShard& shard, const at::Tensor& parameter,
                          const std::string& name) {
  if (!value.isTensor() && tensor::saved_tensor_of(value) == nullptr) return value;
  std::vector<int64_t> sizes = tensor::shape_of_saved(value, name);
  if (sizes.size() != shard.shape.size() || sizes.empty()) return value;  // a number, such as the step
  require(sizes[0] == shard.shape[0], Status::kShapeMismatch, "'", name, "' has the shape ", c10::IntArrayRef(sizes),
          "; expected ", c10::IntArrayRef(shard.shape));
  tensor::Box box{std::vector<int64_t>(sizes.size(), 0), sizes};
  box.offset[0] = shard.offset[0];
  box.sizes[0] = parameter.size(0);
  return tensor::read_box(value, box, name);
}

// A tensor that is saved whole.
c10::IValue whole_of(const c10::IValue& value, const std::string& name) {
  if (tensor::saved_tensor_of(value) == nullptr) return value;
  const std::vector<int64_t> sizes = tensor::shape_of_saved(value, name);
  return tensor::read_box(value, {std::vector<int64_t>(sizes.size(), 0), sizes}, name);
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
      if (index >= parameters.size() || parameters[index].shard == nullptr || !entries.isGenericDict()) return entries;
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

void ModelState::load_state_dict(const c10::IValue& state) {
  nn::Module& module = *model_->module();
  if (!model_->is_sharded()) {
    module.load_state_dict(checkpoint::model_tensors(state));
    return;
  }
  model_->finish_step();
  nn::NamedTensors tensors;
  std::unordered_map<std::string, at::Tensor> own;
  for (const auto& [name, tensor] : module.state_dict()) own.emplace(name, module.find_tensor(name));
  for (const auto& member : state.toGenericDict()) {
    const std::string& name = member.key().toStringRef();
    const auto parameter = own.find(name);
    const ParameterShard* const shard = parameter == own.end() ? nullptr : model_->shard_of(parameter->second);
    const c10::IValue value = shard == nullptr ? whole_of(member.value(), name)
                                               : rows_of_shard(member.value(), *shard, parameter->second, name);
    require(value.isTensor(), Status::kTypeMismatch, "'", name, "' is of kind ", tree::kind_name(value),
            "; expected a tensor");
    tensors.emplace_back(name, value.toTensor());
  }
  module.load_state_dict(tensors);
}

bool OptimizerState::takes_pieces() const {
  return std::any_of(models_.begin(), models_.end(), [](const auto& model) { return model->is_sharded(); });
}

c10::IValue OptimizerState::state_dict() const {
  if (!takes_pieces()) return optimizer_->state_dict();
  for (const auto& model : models_) model->finish_step();
  return change_optimizer_state(
      optimizer_->state_dict(), parameters_of(*optimizer_, models_),
      [](const c10::IValue& value, const OwnedParameter& owned, const std::string&) {
        return is_sharded_like(value, owned.parameter) ? piece_of_shard(value.toTensor(), *owned.shard) : value;
      });
}

void OptimizerState::load_state_dict(const c10::IValue& state) {
  if (!takes_pieces()) return optimizer_->load_state_dict(state);
  for (const auto& model : models_) model->finish_step();
  optimizer_->load_state_dict(
      change_optimizer_state(state, parameters_of(*optimizer_, models_),
                             [](const c10::IValue& value, const OwnedParameter& owned, const std::string& name) {
                               return rows_of_shard(value, *owned.shard, owned.parameter, name);
                             }));
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

c10::IValue without_pieces(const c10::IValue& state) {
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
