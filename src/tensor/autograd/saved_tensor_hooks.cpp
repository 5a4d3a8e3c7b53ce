// SPDX-License-Identifier: Apache-2.0
#include "tensor/autograd/saved_tensor_hooks.hpp"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace accel::tensor {
namespace {

using torch::autograd::Engine;

thread_local const SavedTensorHooks* current_hooks = nullptr;

// Set while a thread looks whether the default engine leads to ours.
enum class Search { kNone, kRunning, kFound };
thread_local Search search = Search::kNone;

size_t depth_of_python_hooks() { return at::SavedTensorDefaultHooks::get_tls_state().stack.size(); }

class SavedItself final : public SavedTensorStandIn {
 public:
  explicit SavedItself(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor tensor() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

class SavedByPython final : public SavedTensorStandIn {
 public:
  SavedByPython(std::unique_ptr<torch::autograd::SavedVariableHooks> hooks, const at::Tensor& tensor)
      : hooks_(std::move(hooks)) {
    hooks_->call_pack_hook(tensor);
  }
  at::Tensor tensor() override { return hooks_->call_unpack_hook(); }

 private:
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_;
};

struct HookedVariable final : torch::autograd::SavedVariableHooks {
  explicit HookedVariable(const SavedTensorHooks& hooks) : hooks(hooks) {}
  void call_pack_hook(const at::Tensor& tensor) override { stand_in = hooks.replace(tensor); }
  at::Tensor call_unpack_hook() override { return stand_in->tensor(); }

  const SavedTensorHooks& hooks;  // of the scope, in which it is packed at once
  std::unique_ptr<SavedTensorStandIn> stand_in;
};

// In front of another engine, which does the work. Has no threads.
class HookingEngine final : public Engine {
 public:
  void set_behind(Engine& behind) { behind_.store(&behind); }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (search == Search::kRunning) {
      search = Search::kFound;
      return nullptr;
    }
    if (current_hooks == nullptr || depth_of_python_hooks() > current_hooks->depth_of_python())
      return behind().get_default_saved_variable_hooks();
    return std::make_unique<HookedVariable>(*current_hooks);
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_behind() const {
    return behind().get_default_saved_variable_hooks();
  }
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& gradients, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return behind().execute(roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, decltype(torch::autograd::NodeTask::fn_) root,
      torch::autograd::InputBuffer&& buffer) override {
    return behind().execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return behind().make_anomaly_metadata();
  }

 private:
  Engine& behind() const { return *behind_.load(); }

  std::atomic<Engine*> behind_{nullptr};
};

// Never destroyed: a backward may run while the process ends.
HookingEngine& hooking_engine() {
  static HookingEngine& instance = *std::make_unique<HookingEngine>().release();
  return instance;
}

// By Python's innermost hooks; null if it has none.
std::unique_ptr<SavedTensorStandIn> save_by_python(const at::Tensor& tensor) {
  auto hooks = hooking_engine().hooks_behind();
  return hooks == nullptr ? nullptr : std::make_unique<SavedByPython>(std::move(hooks), tensor);
}

Engine& default_engine() { return hooking_engine(); }

// The import of Python's torch sets its own engine, before or after ours; ours then goes in front of it. Another
// library may have done the same, so that ours is somewhere behind: then it stays there.
bool leads_to_ours(Engine& engine) {
  search = Search::kRunning;
  engine.get_default_saved_variable_hooks();
  return std::exchange(search, Search::kNone) == Search::kFound;
}

void install() {
  if (leads_to_ours(Engine::get_default_engine())) return;
  static std::mutex& mutex = *std::make_unique<std::mutex>().release();
  const std::lock_guard lock(mutex);
  Engine& engine = Engine::get_default_engine();
  if (leads_to_ours(engine)) return;
  hooking_engine().set_behind(engine);
  torch::autograd::set_default_engine_stub(default_engine);
}

}  // namespace

SavedTensorHooks::SavedTensorHooks(Replace replace)
    : replace_(std::move(replace)), outer_(current_hooks), depth_of_python_(depth_of_python_hooks()) {
  install();
  current_hooks = this;
}

std::unique_ptr<SavedTensorStandIn> SavedTensorHooks::replace(const at::Tensor& tensor) const {
  std::unique_ptr<SavedTensorStandIn> stand_in = replace_(tensor);
  // Python's hooks are between the two scopes if there were fewer of them in the outer one.
  const size_t depth_outside = outer_ == nullptr ? 0 : outer_->depth_of_python();
  if (stand_in == nullptr && depth_of_python_ > depth_outside) stand_in = save_by_python(tensor);
  if (stand_in == nullptr && outer_ != nullptr) stand_in = outer_->replace(tensor);
  if (stand_in == nullptr) stand_in = std::make_unique<SavedItself>(tensor);
  return stand_in;
}

SavedTensorHooks::~SavedTensorHooks() { current_hooks = outer_; }

SavedActivation::SavedActivation(const at::Tensor& tensor)
    : saved_(std::make_unique<torch::autograd::SavedVariable>(tensor, /*is_output=*/false)) {}
SavedActivation::~SavedActivation() = default;
SavedActivation::SavedActivation(SavedActivation&&) noexcept = default;
SavedActivation& SavedActivation::operator=(SavedActivation&&) noexcept = default;

at::Tensor SavedActivation::get() const { return saved_->unpack(); }

void call_after_backward(std::function<void()> function) {
  if (torch::autograd::get_current_graph_task_id() == -1) return;
  Engine::get_default_engine().queue_callback(std::move(function));
}

}  // namespace accel::tensor
