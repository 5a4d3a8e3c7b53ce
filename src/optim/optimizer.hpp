// The interface of every optimizer. Wrappers (the accelerator's, ZeRO's) derive
// from it and hand on what they do not change.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "optim/settings.hpp"
#include "tensor/stateful.hpp"

namespace accel::optim {

// What an update of float16 and bfloat16 parameters is computed in; other dtypes always are updated as they are stored.
enum class UpdatePrecision : uint8_t {
  kAsStored,            // as torch.optim: states have the parameter's dtype
  kMasterWeights,       // a float32 copy is updated, and rounded into the parameter
  kStochasticRounding,  // float32 states; the result is rounded by chance
};

// Parameters that share their settings.
struct ParameterGroup {
  std::vector<at::Tensor> parameters;
  double lr = 0;
  double weight_decay = 0;
  std::vector<double> values;  // of Optimizer::settings(), in their order
  UpdatePrecision precision = UpdatePrecision::kAsStored;
  std::optional<double> initial_lr;                       // what a scheduler multiplies; set when the
                                                          // first scheduler is made
  std::vector<std::pair<const char*, double>> scheduled;  // what torch's scheduler looks for in a state dict's group
};

// Evaluates the loss anew, and leaves its gradients.
using Closure = std::function<void()>;

class Optimizer : public tensor::Stateful {
 public:
  // One update of every parameter that requires a gradient and has one. False when the step was skipped on purpose.
  virtual bool step() = 0;
  // The same by the gradients of a closure, which is called within, once, where autograd records.
  virtual bool step_by(const Closure& closure);
  // Whether the latest update was skipped.
  virtual bool step_was_skipped() const = 0;
  // Drops the gradients, or fills them with zeros: a parameter that the next backward does not reach is then updated by
  // its momentum and decay all the same.
  virtual void zero_grad(bool set_to_none) = 0;
  // Schedule-free optimizers: brings the parameters to where they are trained, or to their average.
  virtual void train(bool training) = 0;

  virtual const std::vector<ParameterGroup>& groups() const = 0;
  // For the settings of one group; its parameters must stay. An index that is
  // not there is an error.
  virtual ParameterGroup& group(size_t index) = 0;
  // Unset settings are those that the optimizer was made with.
  virtual void add_group(std::vector<at::Tensor> parameters, std::optional<double> lr,
                         std::optional<double> weight_decay) = 0;
  // What groups have beside lr and weight_decay.
  virtual c10::ArrayRef<Setting> settings() const = 0;

  // {"state": {"0": {...}}, "param_groups": [{...}]} with the keys of
  // torch.optim; the index counts parameters through all groups. Tensors are
  // shared, not copied, unless they are kept in another form. Loading copies,
  // and checks everything before it changes anything.
  c10::IValue state_dict() const override = 0;
  void load_state_dict(const c10::IValue& state_dict) override = 0;

  // What is kept of all parameters.
  virtual int64_t state_bytes() const = 0;
  // Throws for settings that contradict each other.
  virtual void check_settings(const ParameterGroup& group) const = 0;

  double lr(size_t index) const { return setting(index, "lr"); }
  void set_lr(size_t index, double lr) { set_setting(index, "lr", lr); }
  // By name: "lr", "weight_decay" and those of settings(). Flags are 0 and 1; NaN is a number that has no value.
  double setting(size_t index, std::string_view name) const;
  void set_setting(size_t index, std::string_view name, double value);
  bool has_setting(std::string_view name) const;
  // Refuses what the dtypes of the group do not allow.
  void set_update_precision(size_t index, UpdatePrecision precision);

 protected:
  // The place of a setting, by its name; an error lists the names.
  double& setting_of(ParameterGroup& group, std::string_view name) const;
};

}  // namespace accel::optim
