// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/sharded_parameter.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/accumulate.h>

#include <memory>
#include <utility>
#include <vector>

#include "tensor/set_data.hpp"

namespace accel::parallel {
namespace {

void delete_owner(void* owner) { delete static_cast<at::Tensor*>(owner); }

// The memory of a tensor for another storage, which keeps the tensor.
at::DataPtr memory_of(const at::Tensor& tensor) {
  auto owner = std::make_unique<at::Tensor>(tensor);
  void* const data = owner->mutable_data_ptr();
  return {data, owner.release(), &delete_owner, tensor.device()};
}

}  // namespace

ShardedParameter::ShardedParameter(std::string name, at::Tensor parameter, std::optional<at::ScalarType> compute_dtype,
                                   int rank, int ranks)
    : name_(std::move(name)),
      parameter_(std::move(parameter)),
      layout_(name_, parameter_, compute_dtype, rank, ranks),
      gradient_(parameter_) {}

ShardedParameter::~ShardedParameter() = default;

void ShardedParameter::set_shard_memory(const at::Tensor& memory, const at::Tensor& whole, c10::Device device) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> shape = layout_.shard_shape();
  const RowRange rows = layout_.rows();
  padded_shard_ = memory;
  shard_ = memory.narrow(0, 0, c10::multiply_integers(shape)).view(shape);
  shard_.copy_(whole.narrow(0, rows.begin, rows.size()));
  gradient_.set_options(shard_.options());
  whole_ = at::empty({0}, memory.options().dtype(layout_.compute_dtype()).device(device));
  auto* const impl = whole_.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(layout_.shape());
  // Autograd's node describes the gradient that it expects by the data of now.
  at::Tensor gradient = std::exchange(parameter_.mutable_grad(), at::Tensor());
  tensor::set_data(parameter_, whole_);
  if (is_trained()) hook_.emplace(parameter_);
  tensor::set_data(parameter_, shard_);
  if (gradient.defined() && gradient.sizes() == whole_.sizes())
    parameter_.mutable_grad() = gradient.narrow(0, rows.begin, rows.size()).clone();
}

void ShardedParameter::unshard(const at::Tensor& memory) {
  c10::StorageImpl* const storage = whole_.storage().unsafeGetStorageImpl();
  storage->set_nbytes(memory.nbytes());
  storage->set_data_ptr_noswap(memory_of(memory));
  tensor::set_data(parameter_, whole_);
  if (!is_trained() || hook_) return;
  hook_.emplace(parameter_);
  hook_->set(arrived_);
}

void ShardedParameter::reshard() {
  tensor::set_data(parameter_, shard_);
  c10::StorageImpl* const storage = whole_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, whole_.device()));
  storage->set_nbytes(static_cast<size_t>(0));
}

void ShardedParameter::show_whole(at::Tensor whole) {
  visible_whole_ = std::move(whole);
  tensor::set_data(parameter_, visible_whole_);
}

void ShardedParameter::hide_whole(bool keep) {
  const at::NoGradGuard no_grad;
  tensor::set_data(parameter_, shard_);
  const at::Tensor whole = std::exchange(visible_whole_, at::Tensor());
  if (keep) shard_.copy_(whole.narrow(0, layout_.rows().begin, layout_.rows().size()));
}

bool ShardedParameter::has_storage(const c10::StorageImpl* storage) const {
  return whole_.storage().unsafeGetStorageImpl() == storage;
}

bool ShardedParameter::has_shard() const {
  return parameter_.unsafeGetTensorImpl()->unsafe_storage().is_alias_of(shard_.storage()) &&
         parameter_.storage_offset() == shard_.storage_offset() && parameter_.sizes() == shard_.sizes() &&
         parameter_.scalar_type() == layout_.dtype();
}

void ShardedParameter::watch_gradient(std::function<void()> arrived) {
  arrived_ = std::move(arrived);
  if (hook_) hook_->set(arrived_);
}

}  // namespace accel::parallel
