// SPDX-License-Identifier: Apache-2.0
// Optimizer: the interface of all optimizers. Wrappers, such as the accelerator's, derive from it too.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "optim/settings.hpp"
#include "tensor/stateful.hpp"

namespace accel::precision {
class OverflowFlag;
}

namespace accel::optim {

// The precision of updates of float16 and bfloat16 parameters; other dtypes are always updated as stored.
enum class UpdatePrecision : uint8_t {
  kAsStored,            // as torch.optim: the state has the parameter's dtype
  kMasterWeights,       // a float32 copy is updated, and rounded into the parameter
  kStochasticRounding,  // float32 state; the result is rounded stochastically
};

// Allocates memory like the parameter, in this dtype, for a state of it.
using StateMemory = std::function<at::Tensor(const at::Tensor& parameter, at::ScalarType dtype)>;

// The learning rate on the device, for captured steps, which hold no number of the host.
struct DeviceRate {
  at::Tensor value;  // a float32 scalar
  double written;    // there

  void write(double rate);
};

// Parameters that share their settings.
struct ParameterGroup {
  std::vector<at::Tensor> parameters;
  double lr = 0;
  double weight_decay = 0;
  std::vector<double> values;  // in the order of Optimizer::settings()
  UpdatePrecision precision = UpdatePrecision::kAsStored;
  std::optional<double> initial_lr;       // the base of schedules; set when the first scheduler is created
  StateMemory state_memory;               // null: ordinary memory of the parameter's device
  std::optional<DeviceRate> device_rate;  // updates read it in place of lr
  std::vector<std::pair<const char*, double>> scheduled;  // read by torch's schedulers from a state dict's group
};

// Evaluates the loss again and computes its gradients.
using Closure = std::function<void()>;

class Optimizer : public tensor::Stateful {
 public:
  // Updates every parameter that requires a gradient and has one. False if the step was skipped on purpose.
  virtual bool step() = 0;
  // Steps with a closure, which is called once, with grad mode enabled.
  virtual bool step_by(const Closure& closure);
  // Whether the latest update was skipped. Waits for a device that has yet to tell.
  virtual bool step_was_skipped() const = 0;
  // Sets the gradients to none or to zeros; with zeros, parameters that the next backward does not reach are still
  // updated by momentum and weight decay.
  virtual void zero_grad(bool set_to_none) = 0;
  // Schedule-free optimizers: switches the parameters between the point of training and their average.
  virtual void train(bool training) = 0;

  virtual const std::vector<ParameterGroup>& groups() const = 0;
  // To change the settings of one group, but not its parameters. An invalid index is an error.
  virtual ParameterGroup& group(size_t index) = 0;
  // Unset settings have the values that the optimizer was created with.
  virtual void add_group(std::vector<at::Tensor> parameters, std::optional<double> lr,
                         std::optional<double> weight_decay) = 0;
  // The settings of groups besides lr and weight_decay.
  virtual c10::ArrayRef<Setting> settings() const = 0;

  // {"state": {"0": {...}}, "param_groups": [{...}]} with the keys of
  // torch.optim; parameters are numbered across all groups. Tensors are shared, not copied, unless they are stored in
  // another form. Loading copies, and checks everything before it changes anything.
  c10::IValue state_dict() const override = 0;
  void load_state_dict(const c10::IValue& state_dict) override = 0;

  // For steps that are captured: from the first call on, updates read each group's learning rate from the device of its
  // parameters, and no number from the host that changes from step to step. Called before each step, also one that is
  // replayed, and outside of the capture: writes the rates that have changed. Does nothing for parameters on the CPU.
  // kUnsupported for optimizers whose updates need more numbers than that.
  virtual void write_device_rates();

  // Whether each element is updated by itself. Optimizers of the application are taken to be so.
  virtual bool is_elementwise() const { return true; }
  // The size of the state of all parameters.
  virtual int64_t state_bytes() const = 0;
  // The size of the state that a parameter of this shape and dtype will have, in the first group or by the settings of
  // the optimizer if it has none. The parameter may be without memory. kUnsupported where that is unknown.
  virtual int64_t expected_state_bytes(const at::Tensor& parameter) const;
  // Throws for settings that contradict each other.
  virtual void check_settings(const ParameterGroup& group) const = 0;

  std::vector<at::Tensor> parameters() const;  // of all groups
  // Whether an entry of a parameter's state has the parameter's shape, and one element for each of the parameter's. Not
  // set where only the entry itself can tell: its shape does.
  virtual std::optional<bool> is_like_parameter(std::string_view /*entry*/) const { return std::nullopt; }

  // Steps unless the flag of a device is set, which the host does not wait for. False, and nothing has been done, if
  // the optimizer has to know it.
  virtual bool step_unless(const std::shared_ptr<precision::OverflowFlag>& /*overflow*/) { return false; }
  // Whether step_was_skipped() answers at once. If not, `action` is called when it does: before anything looks at the
  // settings again.
  virtual bool knows_step() const { return true; }
  virtual void when_step_is_known(std::function<void()> action) { std::exchange(action, nullptr)(); }

  double lr(size_t index) const { return setting(index, "lr"); }
  void set_lr(size_t index, double lr) { set_setting(index, "lr", lr); }
  // By name: "lr", "weight_decay" and those of settings(). Flags are 0 and 1; NaN means unset.
  double setting(size_t index, std::string_view name) const;
  void set_setting(size_t index, std::string_view name, double value);
  bool has_setting(std::string_view name) const;
  // Throws for settings that the dtypes of the group do not allow.
  void set_update_precision(size_t index, UpdatePrecision precision);

 protected:
  // The index of a setting by its name; an error lists the names.
  double& setting_of(ParameterGroup& group, std::string_view name) const;
};

}  // namespace accel::optim
