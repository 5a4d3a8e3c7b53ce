#include "parallel/fsdp/sharded_parameter.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
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

int64_t product(c10::IntArrayRef sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return elements;
}

}  // namespace

struct ShardedParameter::Accumulator {
  using NodePtr = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  explicit Accumulator(const at::Tensor& parameter) : node(torch::autograd::impl::grad_accumulator(parameter)) {}
  ~Accumulator() {
    if (hook != 0) node->del_post_hook(hook);
  }
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;

  NodePtr node;
  uintptr_t hook = 0;
};

int64_t rows_per_rank(int64_t rows, int ranks) { return (rows + ranks - 1) / ranks; }

RowRange rows_of_rank(int64_t rows, int rank, int ranks) {
  const int64_t each = rows_per_rank(rows, ranks);
  const int64_t begin = std::min(rows, each * rank);
  return {begin, std::min(rows, begin + each)};
}

ShardedParameter::ShardedParameter(std::string name, at::Tensor parameter, std::optional<at::ScalarType> compute_dtype,
                                   int rank, int ranks)
    : name_(std::move(name)),
      parameter_(std::move(parameter)),
      shape_(parameter_.sizes().vec()),
      dtype_(parameter_.scalar_type()),
      compute_dtype_(parameter_.is_floating_point() ? compute_dtype.value_or(dtype_) : dtype_),
      ranks_(ranks) {
  require(!shape_.empty(), Status::kUnsupported, "parameter '", name_,
          "' is a single number, which has no rows to share among the ranks; expected at least one dimension, shape "
          "[1], or a module that ignored_modules names");
  rows_ = rows_of_rank(shape_[0], rank, ranks);
  const int64_t row = product(c10::IntArrayRef(shape_).slice(1));
  elements_per_rank_ = rows_per_rank(shape_[0], ranks) * row;
}

ShardedParameter::~ShardedParameter() = default;

void ShardedParameter::set_shard_memory(const at::Tensor& memory, const at::Tensor& whole, c10::Device device) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> shape = shape_;
  shape[0] = rows_.size();
  padded_shard_ = memory;
  shard_ = memory.narrow(0, 0, product(shape)).view(shape);
  shard_.copy_(whole.narrow(0, rows_.begin, rows_.size()));
  whole_ = at::empty({0}, memory.options().dtype(compute_dtype_).device(device));
  auto* const impl = whole_.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(shape_);
  // Autograd's node describes the gradient that it expects by the data of now.
  at::Tensor gradient = std::exchange(parameter_.mutable_grad(), at::Tensor());
  tensor::set_data(parameter_, whole_);
  if (is_trained()) accumulator_ = std::make_unique<Accumulator>(parameter_);
  tensor::set_data(parameter_, shard_);
  if (gradient.defined() && gradient.sizes() == whole_.sizes())
    parameter_.mutable_grad() = gradient.narrow(0, rows_.begin, rows_.size()).clone();
}

void ShardedParameter::unshard(const at::Tensor& memory) {
  c10::StorageImpl* const storage = whole_.storage().unsafeGetStorageImpl();
  storage->set_nbytes(memory.nbytes());
  storage->set_data_ptr_noswap(memory_of(memory));
  tensor::set_data(parameter_, whole_);
  if (!is_trained() || accumulator_ != nullptr) return;
  accumulator_ = std::make_unique<Accumulator>(parameter_);
  add_hook();
}

void ShardedParameter::reshard() {
  tensor::set_data(parameter_, shard_);
  c10::StorageImpl* const storage = whole_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, whole_.device()));
  storage->set_nbytes(static_cast<size_t>(0));
}

void ShardedParameter::show_whole(at::Tensor whole) {
  shown_ = std::move(whole);
  tensor::set_data(parameter_, shown_);
}

void ShardedParameter::hide_whole(bool keep) {
  const at::NoGradGuard no_grad;
  tensor::set_data(parameter_, shard_);
  const at::Tensor whole = std::exchange(shown_, at::Tensor());
  if (keep) shard_.copy_(whole.narrow(0, rows_.begin, rows_.size()));
}

bool ShardedParameter::has_storage(const c10::StorageImpl* storage) const {
  return whole_.storage().unsafeGetStorageImpl() == storage;
}

bool ShardedParameter::has_shard() const {
  return parameter_.unsafeGetTensorImpl()->unsafe_storage().is_alias_of(shard_.storage()) &&
         parameter_.storage_offset() == shard_.storage_offset() && parameter_.sizes() == shard_.sizes() &&
         parameter_.scalar_type() == dtype_;
}

void ShardedParameter::watch_gradient(std::function<void()> arrived) {
  arrived_ = std::move(arrived);
  if (accumulator_ != nullptr) add_hook();
}

void ShardedParameter::add_hook() {
  accumulator_->hook = accumulator_->node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [this](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
        arrived_();
        return outputs;
      }));
}

void ShardedParameter::begin_backward() {
  if (std::exchange(in_backward_, true)) return;
  shard_gradient_ = std::exchange(parameter_.mutable_grad(), std::move(whole_gradient_));
  whole_gradient_.reset();
}

at::Tensor ShardedParameter::take_gradient() { return std::exchange(parameter_.mutable_grad(), at::Tensor()); }

void ShardedParameter::add_zero_gradient() {
  const at::NoGradGuard no_grad;
  if (!parameter_.grad().defined()) parameter_.mutable_grad() = at::zeros_like(parameter_);
}

void ShardedParameter::end_backward(const at::Tensor& shard_gradient) {
  if (!std::exchange(in_backward_, false)) return;
  at::Tensor gradient = std::move(shard_gradient_);
  shard_gradient_.reset();
  if (shard_gradient.defined()) {
    const at::NoGradGuard no_grad;
    if (gradient.defined())
      gradient.add_(shard_gradient.to(gradient.options()));
    else if (gradient_memory_.defined())
      gradient = gradient_memory_.copy_(shard_gradient);
    else
      gradient = shard_gradient.to(shard_.options());
  }
  parameter_.mutable_grad() = std::move(gradient);
}

}  // namespace accel::parallel
