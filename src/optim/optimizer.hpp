// The interface of every optimizer. Wrappers (the accelerator's, ZeRO's) derive
// from it and hand on what they do not change.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace accel::optim {

// Parameters that share their settings.
struct ParameterGroup {
  std::vector<at::Tensor> parameters;
  double lr = 0;
  double weight_decay = 0;
  std::optional<double> initial_lr;  // what a scheduler multiplies; set when the
                                     // first scheduler is made
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update of every parameter that has a gradient. False when the step was
  // skipped on purpose.
  virtual bool step() = 0;
  virtual bool step_was_skipped() const = 0;
  virtual void zero_grad() = 0;

  virtual const std::vector<ParameterGroup>& groups() const = 0;
  // For the settings of one group; its parameters must stay. An index that is
  // not there is an error.
  virtual ParameterGroup& group(size_t index) = 0;
  // Unset settings are those that the optimizer was made with.
  virtual void add_group(std::vector<at::Tensor> parameters, std::optional<double> lr,
                         std::optional<double> weight_decay) = 0;

  // {"state": {"0": {...}}, "param_groups": [{...}]} with the keys of
  // torch.optim; the index counts parameters through all groups. Tensors are
  // shared, not copied. Loading copies, and checks everything before it changes
  // anything.
  virtual c10::IValue state_dict() const = 0;
  virtual void load_state_dict(const c10::IValue& state_dict) = 0;

  double lr(size_t index) const;
  void set_lr(size_t index, double lr);
};

}  // namespace accel::optim
