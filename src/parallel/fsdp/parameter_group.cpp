#include "parallel/fsdp/parameter_group.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "parallel/communication_memory.hpp"
#include "tensor/file_memory.hpp"

namespace accel::parallel {
namespace {

// Parts of one piece of memory, each at a cache line.
class Layout {
 public:
  int64_t add(int64_t elements, at::ScalarType dtype) {
    const int64_t offset = bytes_;
    bytes_ += aligned_shard_bytes(elements, dtype);
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

at::Tensor part_of(const at::Tensor& memory, int64_t offset, int64_t elements, at::ScalarType dtype) {
  return memory.narrow(0, offset, elements * static_cast<int64_t>(c10::elementSize(dtype))).view(dtype);
}

void wait_for(const std::shared_ptr<comm::Work>& work) {
  if (work == nullptr) return;
  work->wait();
  if (const auto error = work->error()) std::rethrow_exception(error);
}

}  // namespace

int64_t aligned_shard_bytes(int64_t elements, at::ScalarType dtype) {
  constexpr int64_t kCacheLine = 64;  // bytes
  const int64_t bytes = elements * static_cast<int64_t>(c10::elementSize(dtype));
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

ParameterGroup::ParameterGroup(std::string name, const nn::NamedTensors& parameters, const ShardOptions& options,
                               const ModelRanks& ranks)
    : name_(std::move(name)), options_(options), ranks_(ranks) {
  for (const auto& [path, tensor] : parameters) {
    parameters_.push_back(std::make_unique<ShardedParameter>(path, tensor, options_.param_dtype, ranks_.shard->rank(),
                                                             ranks_.shard->size()));
    num_trained_ += tensor.requires_grad() ? 1 : 0;
  }
  arrived_.assign(parameters_.size(), false);
}

// Whether a copy of the shard is gathered, in another place or dtype, instead of the shard itself.
bool ParameterGroup::is_copied(const ShardedParameter& parameter) const {
  return on_host_ || parameter.dtype() != parameter.compute_dtype();
}

void ParameterGroup::shard(c10::Device device, const std::function<at::Tensor(size_t index)>& whole) {
  const at::NoGradGuard no_grad;
  device_ = device;
  on_host_ = (options_.cpu_offload || options_.offload_optimizer) && !device.is_cpu();
  const std::string& folder = options_.offload_folder;
  Layout own, whole_layout;
  std::vector<int64_t> offsets;
  for (const auto& parameter : parameters_) {
    offsets.push_back(own.add(parameter->elements_per_rank(), parameter->dtype()));
    whole_layout.add(parameter->padded_elements(), parameter->compute_dtype());
  }
  whole_bytes_ = whole_layout.bytes();
  const at::TensorOptions bytes = at::TensorOptions().dtype(at::kByte);
  at::Tensor memory, gradients;
  if (options_.cpu_offload && !folder.empty())
    memory = tensor::file_zeros(folder, {own.bytes()}, at::kByte);
  else
    memory = on_host_ ? at::zeros({own.bytes()}, bytes)
                      : communication_zeros(*ranks_.shard, own.bytes(), bytes.device(device));
  if (options_.offload_optimizer && !folder.empty() && num_trained_ > 0)
    gradients = tensor::file_zeros(folder, {own.bytes()}, at::kByte);
  for (size_t i = 0; i < parameters_.size(); i++) {
    ShardedParameter& parameter = *parameters_[i];
    const int64_t elements = parameter.elements_per_rank();
    parameter.set_shard_memory(part_of(memory, offsets[i], elements, parameter.dtype()), whole(i), device);
    if (!gradients.defined() || !parameter.is_trained()) continue;
    const at::Tensor& shard = parameter.shard();
    parameter.set_gradient_memory(part_of(gradients, offsets[i], shard.numel(), parameter.dtype()).view(shard.sizes()));
  }
}

void ParameterGroup::make_sent_shards() {
  Layout layout;
  for (const auto& parameter : parameters_)
    if (is_copied(*parameter)) layout.add(parameter->elements_per_rank(), parameter->compute_dtype());
  at::Tensor memory;
  if (layout.bytes() > 0)
    memory = communication_zeros(*ranks_.shard, layout.bytes(), at::TensorOptions().dtype(at::kByte).device(device_));
  layout = {};
  for (const auto& parameter : parameters_) {
    if (!is_copied(*parameter)) {
      sent_shards_.push_back(parameter->padded_shard());
      continue;
    }
    const int64_t offset = layout.add(parameter->elements_per_rank(), parameter->compute_dtype());
    sent_shards_.push_back(part_of(memory, offset, parameter->elements_per_rank(), parameter->compute_dtype()));
  }
}

void ParameterGroup::update_sent_shards() {
  if (sent_shards_.empty()) make_sent_shards();
  if (!std::exchange(is_updated_, false)) return;
  for (size_t i = 0; i < parameters_.size(); i++)
    if (is_copied(*parameters_[i])) sent_shards_[i].copy_(parameters_[i]->padded_shard());
}

void ParameterGroup::check_data() const {
  for (const auto& parameter : parameters_)
    require(
        parameter->has_shard(), Status::kInvalidState, "the data of '", parameter->name(), "' of ",
        name_.empty() ? std::string("the model") : text("the module '", name_, "'"),
        " are not those of its shard any more: they are ", parameter->tensor().scalar_type(),
        parameter->tensor().sizes(), " and the shard is ", parameter->dtype(), parameter->shard().sizes(),
        "; expected that a sharded parameter changes in place only, without another shape, dtype, device or memory");
}

void ParameterGroup::start_unshard() {
  if (unsharded_ || gathering_ != nullptr || parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  check_data();
  if (kept_parts_.empty()) update_sent_shards();
  const std::vector<at::Tensor>& sent = kept_parts_.empty() ? sent_shards_ : kept_parts_;
  const at::Tensor memory = kernels::empty_cached({whole_bytes_}, at::TensorOptions().dtype(at::kByte).device(device_));
  Layout layout;
  std::vector<comm::Collective> collectives;
  for (size_t i = 0; i < parameters_.size(); i++) {
    const ShardedParameter& parameter = *parameters_[i];
    const int64_t offset = layout.add(parameter.padded_elements(), parameter.compute_dtype());
    whole_.push_back(part_of(memory, offset, parameter.padded_elements(), parameter.compute_dtype()));
    if (parameter.padded_elements() > 0) collectives.push_back(comm::Collective::all_gather(sent[i], whole_.back()));
  }
  gathering_ = (kept_parts_.empty() ? ranks_.shard : ranks_.reshard)->start(collectives);
}

void ParameterGroup::unshard() {
  if (unsharded_) return;
  start_unshard();
  wait_for(std::exchange(gathering_, nullptr));
  for (size_t i = 0; i < parameters_.size(); i++) parameters_[i]->unshard(whole_[i]);
  if (on_host_ && !options_.offload_optimizer) {  // the copies are of no use until the next time
    sent_shards_.clear();
    is_updated_ = true;
  }
  unsharded_ = true;
}

void ParameterGroup::reshard_for_backward() {
  if (ranks_.reshard == nullptr || !unsharded_) return reshard();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& whole : whole_) {
    const int64_t elements = whole.numel() / ranks_.reshard->size();
    parts.push_back(whole.narrow(0, elements * ranks_.reshard->rank(), elements).clone());
  }
  reshard();
  kept_parts_ = std::move(parts);
}

void ParameterGroup::reshard() {
  if (const auto gathering = std::exchange(gathering_, nullptr)) gathering->wait();
  whole_.clear();
  kept_parts_.clear();
  if (!std::exchange(unsharded_, false)) return;
  for (const auto& parameter : parameters_) parameter->reshard();
}

bool ParameterGroup::has_storage(const c10::StorageImpl* storage) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [storage](const auto& parameter) { return parameter->has_storage(storage); });
}

void ParameterGroup::begin_backward() {
  if (std::exchange(in_backward_, true)) return;
  arrived_.assign(parameters_.size(), false);
  num_arrived_ = 0;
  num_trained_ = 0;
  for (const auto& parameter : parameters_) {
    if (!parameter->is_trained()) continue;
    num_trained_ += 1;
    parameter->begin_backward();
  }
}

void ParameterGroup::watch_gradients(const std::function<void(size_t index)>& arrived) {
  for (size_t i = 0; i < parameters_.size(); i++) parameters_[i]->watch_gradient([arrived, i] { arrived(i); });
}

bool ParameterGroup::gradient_arrived(size_t index) {
  if (arrived_[index]) return false;
  arrived_[index] = true;
  num_arrived_ += 1;
  return all_arrived();
}

at::ScalarType ParameterGroup::reduce_dtype(const ShardedParameter& parameter) const {
  return options_.reduce_dtype.value_or(parameter.compute_dtype());
}

void ParameterGroup::start_reduce(double factor) {
  const at::NoGradGuard no_grad;
  factor_ = factor;
  std::vector<comm::Collective> collectives;
  for (const auto& parameter : parameters_) {
    if (!parameter->is_trained()) continue;
    at::Tensor gradient = parameter->take_gradient();
    if (!gradient.defined()) continue;  // the same on all ranks: the loss does not depend on it
    gradient = gradient.to(reduce_dtype(*parameter)).contiguous().view({-1});
    if (gradient.numel() != parameter->padded_elements()) {
      at::Tensor padded = at::empty({parameter->padded_elements()}, gradient.options());
      padded.narrow(0, 0, gradient.numel()).copy_(gradient);
      padded.narrow(0, gradient.numel(), padded.numel() - gradient.numel()).zero_();
      gradient = std::move(padded);
    }
    at::Tensor shard = at::empty({parameter->elements_per_rank()}, gradient.options());
    if (gradient.numel() > 0)
      collectives.push_back(comm::Collective::reduce_scatter(gradient, comm::ReduceOp::kMean, shard));
    reduced_.push_back({parameter.get(), std::move(gradient), std::move(shard)});
  }
  if (collectives.empty()) return;
  reducing_ = ranks_.shard->start(collectives);
}

void ParameterGroup::finish_reduce() {
  const at::NoGradGuard no_grad;
  wait_for(std::exchange(reducing_, nullptr));
  if (ranks_.replicate != nullptr && ranks_.replicate->size() > 1 && !reduced_.empty()) {
    std::vector<comm::Collective> collectives;
    for (const Reduced& reduced : reduced_)
      if (reduced.shard.numel() > 0)
        collectives.push_back(comm::Collective::all_reduce(reduced.shard, comm::ReduceOp::kMean));
    ranks_.replicate->run(collectives);
  }
  for (const Reduced& reduced : std::exchange(reduced_, {})) {
    const at::Tensor& shard = reduced.parameter->shard();
    if (factor_ != 1) reduced.shard.mul_(factor_);
    reduced.parameter->end_backward(reduced.shard.narrow(0, 0, shard.numel()).view(shard.sizes()));
  }
  for (const auto& parameter : parameters_)
    if (parameter->is_trained()) parameter->end_backward({});
  in_backward_ = false;
}

void ParameterGroup::keep_gradients() {
  for (const auto& parameter : parameters_) {
    if (!parameter->is_trained()) continue;
    at::Tensor gradient = parameter->take_gradient();
    parameter->end_backward({});
    if (gradient.defined()) parameter->keep_gradient(std::move(gradient));
  }
  in_backward_ = false;
}

bool ParameterGroup::has_kept_gradients() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const auto& parameter) { return parameter->kept_gradient().defined(); });
}

}  // namespace accel::parallel
