// SPDX-License-Identifier: Apache-2.0
#include "nn/recompute/checkpointed_forward.hpp"

#include <ATen/core/grad_mode.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/attention/attention_dispatch.hpp"
#include "kernels/cached_results.hpp"
#include "kernels/matmul/convolution_dispatch.hpp"
#include "kernels/matmul/matmul_dispatch.hpp"
#include "nn/recompute/early_stop.hpp"
#include "nn/recompute/forward_state.hpp"
#include "tensor/autograd/saved_tensor_hooks.hpp"
#include "tensor/device/host_copy.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// An input as the forward gets it.
class SavedInput {
 public:
  SavedInput(const at::Tensor& tensor, bool offload) : SavedInput(tensor, host_copy_of(tensor, offload)) {}

  at::Tensor restored() const {
    const at::Tensor kept = saved_.get();
    // Without what it was computed from: only what the forward saves is of interest.
    at::Tensor tensor = (copy_ ? copy_->on_device(kept) : kept).detach();
    return tensor.set_requires_grad(requires_grad_);
  }

 private:
  SavedInput(const at::Tensor& tensor, std::optional<tensor::HostCopy> copy)
      : requires_grad_(tensor.requires_grad()), saved_(copy ? copy->host() : tensor), copy_(std::move(copy)) {
    if (copy_) copy_->forget_host();
  }
  static std::optional<tensor::HostCopy> host_copy_of(const at::Tensor& tensor, bool offload) {
    if (!offload || !tensor::HostCopy::is_possible(tensor)) return std::nullopt;
    return tensor::HostCopy(tensor);
  }

  bool requires_grad_;
  // By the hooks around: inside of another checkpointed forward that one computes it again.
  tensor::SavedActivation saved_;
  std::optional<tensor::HostCopy> copy_;
};

// A tensor that the forward saved.
struct Saved {
  explicit Saved(const at::Tensor& tensor)
      : dtype(tensor.scalar_type()), device(tensor.device()), sizes(tensor.sizes()) {}
  bool is_like(const at::Tensor& tensor) const {
    return tensor.scalar_type() == dtype && tensor.device() == device && tensor.sizes().equals(sizes);
  }

  c10::ScalarType dtype;
  c10::Device device;
  c10::DimVector sizes;
  bool is_needed = true;  // by a node
  at::Tensor recomputed;  // undefined until the forward is computed again, and once a node has it
  uint32_t recomputed_version = 0;
};

std::vector<uint32_t> versions_of_parameters(const Module& module) {
  std::vector<uint32_t> versions;
  for (const at::Tensor& parameter : module.parameters())
    versions.push_back(static_cast<uint32_t>(parameter._version()));
  return versions;
}

class CheckpointedForward : public std::enable_shared_from_this<CheckpointedForward> {
 public:
  CheckpointedForward(Module& module, const Inputs& inputs, Checkpointing settings, ForwardFunction forward)
      : module_(module.shared_from_this()),
        settings_(std::move(settings)),
        forward_(std::move(forward)),
        state_(module, inputs, settings_->preserve_rng_state),
        is_training_(module.is_training()),
        parameter_versions_(versions_of_parameters(module)) {
    for (const c10::IValue& input : inputs)
      inputs_.push_back(tree::map_leaves(input, [this](const c10::IValue& leaf) {
        const bool is_tensor = leaf.isTensor() && leaf.toTensor().defined();
        is_tensor_.push_back(is_tensor);
        if (!is_tensor) return leaf;
        kept_inputs_.emplace_back(leaf.toTensor(), settings_->offload);
        return c10::IValue();
      }));
  }

  c10::IValue run(const Inputs& inputs) {
    const tensor::SavedTensorHooks hooks([this](const at::Tensor& tensor) { return save(tensor); });
    const kernels::CachedResults::Scope matmuls(keeps_matmuls() ? &matmuls_ : nullptr);
    return forward_(inputs);
  }

  // For a backward.
  at::Tensor tensor(size_t index) {
    const std::lock_guard recomputing(recomputation_mutex_);
    at::Tensor tensor = take(index);
    if (tensor.defined()) return tensor;
    recompute();
    return take(index);
  }

  void forget(size_t index) {
    at::Tensor dropped;  // outlives the lock
    const std::lock_guard lock(saved_mutex_);
    saved_[index].is_needed = false;
    dropped = std::move(saved_[index].recomputed);
  }

 private:
  class StandIn final : public tensor::SavedTensorStandIn {
   public:
    StandIn(std::shared_ptr<CheckpointedForward> forward, size_t index) : forward_(std::move(forward)), index_(index) {}
    ~StandIn() override { forward_->forget(index_); }
    at::Tensor tensor() override { return forward_->tensor(index_); }

   private:
    std::shared_ptr<CheckpointedForward> forward_;
    size_t index_;
  };
  // In the graph that is thrown away.
  class NeverNeeded final : public tensor::SavedTensorStandIn {
    at::Tensor tensor() override {
      fail(Status::kInvalidState, "a backward runs inside of a forward that is computed again; expected it outside");
    }
  };

  bool keeps_matmuls() const { return settings_->recompute == Recompute::kKeepMatmuls; }

  std::unique_ptr<tensor::SavedTensorStandIn> save(const at::Tensor& tensor) {
    const std::lock_guard lock(saved_mutex_);
    saved_.emplace_back(tensor);
    return std::make_unique<StandIn>(shared_from_this(), saved_.size() - 1);
  }

  at::Tensor take(size_t index) {
    const std::lock_guard lock(saved_mutex_);
    Saved& saved = saved_[index];
    if (!saved.recomputed.defined()) return {};
    require(static_cast<uint32_t>(saved.recomputed._version()) == saved.recomputed_version, Status::kInvalidState,
            "the forward of a module of kind '", module_->kind(), "' changes a tensor of shape ",
            c10::IntArrayRef(saved.sizes), " in place that backward needs; use the operator that makes a new tensor");
    return std::move(saved.recomputed);
  }

  at::Tensor restored(const SavedInput& input) const {
    try {
      return input.restored();
    } catch (const c10::Error& error) {
      const std::string message = error.what_without_backtrace();
      if (message.find("modified by an inplace operation") == std::string::npos) throw;
      fail(Status::kInvalidState, "an input of a module of kind '", module_->kind(),
           "' was changed in place between the forward and its backward, which computes the forward again; change it "
           "afterwards, or give the module a copy");
    }
  }

  Inputs restored_inputs() const {
    size_t next = 0, place = 0;
    Inputs inputs;
    for (const c10::IValue& input : inputs_)
      inputs.push_back(tree::map_leaves(input, [&](const c10::IValue& leaf) {
        return is_tensor_[place++] ? c10::IValue(restored(kept_inputs_[next++])) : leaf;
      }));
    return inputs;
  }

  void require_unchanged_module() const {
    require(module_->is_training() == is_training_, Status::kInvalidState, "a module of kind '", module_->kind(),
            "' was called while ", is_training_ ? "training" : "evaluating",
            " and its forward is computed again in the other mode; call accel_module_train() after the backward");
    require(
        versions_of_parameters(*module_) == parameter_versions_, Status::kInvalidState,
        "a parameter of a module of kind '", module_->kind(),
        "' was changed between the forward and its backward, which computes the forward again; change it afterwards");
  }

  void recompute() {
    require_unchanged_module();
    const Inputs inputs = restored_inputs();
    start_recomputation();
    const tensor::SavedTensorHooks hooks([this](const at::Tensor& tensor) { return save_again(tensor); });
    const kernels::CachedResults::Scope matmuls(keeps_matmuls() ? &matmuls_ : nullptr, /*takes=*/true);
    try {
      state_.replay(*module_, [&] { forward_(inputs); });
    } catch (const EarlyStop& stop) {
      if (stop.forward != this) throw;
      return;
    }
    require(next_ == saved_.size(), Status::kInvalidState, "the forward of a module of kind '", module_->kind(),
            "' saved ", saved_.size(), " tensors for backward and ", next_,
            " when it was computed again; expected the same computation each time");
  }

  void start_recomputation() {
    const std::lock_guard lock(saved_mutex_);
    next_ = 0;
    no_early_stop_depth_ = NoEarlyStop::depth();
    for (size_t i = 0; i < saved_.size(); i++)
      if (saved_[i].is_needed) last_needed_ = i;
    // Results that this backward does not take, because it goes another way, are dropped.
    tensor::call_after_backward([forward = weak_from_this()] {
      if (const auto self = forward.lock()) self->drop_recomputed();
    });
  }

  void drop_recomputed() {
    std::vector<at::Tensor> dropped;  // outlive the lock
    const std::lock_guard lock(saved_mutex_);
    for (Saved& saved : saved_) dropped.push_back(std::move(saved.recomputed));
  }

  std::unique_ptr<tensor::SavedTensorStandIn> save_again(const at::Tensor& tensor) {
    const std::lock_guard lock(saved_mutex_);
    const size_t index = next_++;
    require(index < saved_.size(), Status::kInvalidState, "the forward of a module of kind '", module_->kind(),
            "' saves more than the ", saved_.size(),
            " tensors of before when it is computed again; expected the same computation each time");
    Saved& saved = saved_[index];
    require(!settings_->determinism_check || saved.is_like(tensor), Status::kInvalidState,
            "the forward of a module of kind '", module_->kind(), "' saved a tensor of shape ",
            c10::IntArrayRef(saved.sizes), ", dtype ", saved.dtype, " on ", saved.device, ", and one of ",
            tensor.sizes(), ", ", tensor.scalar_type(), " on ", tensor.device(),
            " when it was computed again; expected the same computation each time");
    if (saved.is_needed) {
      saved.recomputed = tensor.detach();
      saved.recomputed_version = static_cast<uint32_t>(saved.recomputed._version());
    }
    if (settings_->early_stop && index >= last_needed_ && NoEarlyStop::depth() == no_early_stop_depth_)
      throw EarlyStop{this};
    return std::make_unique<NeverNeeded>();
  }

  const ModulePtr module_;
  const Checkpointing settings_;
  const ForwardFunction forward_;
  const ForwardState state_;
  const bool is_training_;
  const std::vector<uint32_t> parameter_versions_;
  Inputs inputs_;                // without their tensors
  std::vector<bool> is_tensor_;  // each leaf of them
  std::vector<SavedInput> kept_inputs_;
  kernels::CachedResults matmuls_;

  std::mutex saved_mutex_;  // of saved_
  std::vector<Saved> saved_;

  std::mutex recomputation_mutex_;  // of what follows
  size_t next_ = 0;                 // that the forward saves
  size_t last_needed_ = 0;
  int no_early_stop_depth_ = 0;  // where it began
};

}  // namespace

c10::IValue checkpointed_forward(Module& module, const Inputs& inputs, const Checkpointing& settings,
                                 const ForwardFunction& forward) {
  if (settings->recompute == Recompute::kKeepMatmuls) {
    kernels::install_matmul_overrides();
    kernels::install_convolution_dispatch();
    kernels::install_attention_dispatch();
  }
  return std::make_shared<CheckpointedForward>(module, inputs, settings, forward)->run(inputs);
}

}  // namespace accel::nn
