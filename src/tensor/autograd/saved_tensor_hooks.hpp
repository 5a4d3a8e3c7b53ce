// SPDX-License-Identifier: Apache-2.0
// Saved-tensor hooks: the nodes of autograd save tensors for the backward. In a scope of hooks others stand in for
// them.
//
// LibTorch asks its autograd engine for such hooks. Ours is an engine in front of the one that is there, LibTorch's or
// Python's, which keeps computing all backwards.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch::autograd {
class SavedVariable;
}

namespace accel::tensor {

// Replaces a tensor that a node saves. It ends when the node needs the tensor no more.
class SavedTensorStandIn {
 public:
  SavedTensorStandIn() = default;
  virtual ~SavedTensorStandIn() = default;
  SavedTensorStandIn(const SavedTensorStandIn&) = delete;
  SavedTensorStandIn& operator=(const SavedTensorStandIn&) = delete;

  // Called in a backward, by the thread that computes it.
  virtual at::Tensor tensor() = 0;
};

// Bound to its thread; scopes end in reverse order, and the innermost has an effect. Python's own hooks are scopes like
// these.
class SavedTensorHooks {
 public:
  // Called for each tensor that a node saves, without autograd. It may throw, which ends the operator. Null: the hooks
  // around decide, and if there are none the tensor is saved as it is.
  using Replace = std::function<std::unique_ptr<SavedTensorStandIn>(const at::Tensor& tensor)>;
  explicit SavedTensorHooks(Replace replace);
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

  std::unique_ptr<SavedTensorStandIn> replace(const at::Tensor& tensor) const;
  size_t depth_of_python() const { return depth_of_python_; }

 private:
  Replace replace_;
  const SavedTensorHooks* outer_;
  size_t depth_of_python_;  // of Python's hooks when the scope began
};

// A tensor that is saved as a node saves its tensors: by the hooks around, and with LibTorch's check that it was not
// changed in place.
class SavedActivation {
 public:
  explicit SavedActivation(const at::Tensor& tensor);
  ~SavedActivation();
  SavedActivation(SavedActivation&&) noexcept;
  SavedActivation& operator=(SavedActivation&&) noexcept;

  at::Tensor get() const;

 private:
  std::unique_ptr<torch::autograd::SavedVariable> saved_;
};

// At the end of the backward that this thread computes; never if there is none.
void call_after_backward(std::function<void()> function);

}  // namespace accel::tensor
