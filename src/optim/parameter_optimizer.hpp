// What optimizers over groups of parameters share: the groups, their gradients,
// and the outer shape of the state dict.
#pragma once

#include <c10/util/ArrayRef.h>

#include <memory>

#include "optim/optimizer.hpp"
#include "optim/settings.hpp"

namespace accel::optim {

// A parameter with a gradient whose dtype and memory layout are the
// parameter's: kernels may walk both as flat arrays.
struct GradientEntry {
  size_t index;  // of the parameter, counted through all groups
  at::Tensor parameter;
  at::Tensor gradient;
};

class ParameterOptimizer : public Optimizer {
 public:
  bool step() final;
  bool step_was_skipped() const final { return false; }
  void zero_grad() final;
  const std::vector<ParameterGroup>& groups() const final { return groups_; }
  ParameterGroup& group(size_t index) final;
  void add_group(std::vector<at::Tensor> parameters, std::optional<double> lr,
                 std::optional<double> weight_decay) final;
  c10::IValue state_dict() const final;
  void load_state_dict(const c10::IValue& state_dict) final;

  // Whether zero_grad() writes zeros rather than dropping the gradients.
  // Gradients that are views of communication buckets need it, and it saves the
  // allocation in the next backward.
  void set_keep_gradient_memory(bool keep) { keep_gradient_memory_ = keep; }

 protected:
  ParameterOptimizer(double lr, double weight_decay);

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // A group was appended: make room for what belongs to it and its parameters.
  virtual void group_added() = 0;
  // Entries of one group that share a device and a dtype; never empty. Runs
  // without autograd.
  virtual void update(size_t group, c10::ArrayRef<GradientEntry> entries) = 0;

  // Settings of a group that only this kind has.
  virtual void write_settings(size_t group, Map& settings) const = 0;
  // Nothing while the parameter was never updated.
  virtual std::optional<Map> write_state(size_t index) const = 0;

  // Loading, first half: settings of every group and state of every parameter
  // are checked and copied...
  class Loaded {
   public:
    virtual ~Loaded() = default;
  };
  virtual std::unique_ptr<Loaded> read(const std::vector<Map>& settings,
                                       const std::vector<std::optional<Map>>& states) const = 0;
  // ...and second half: they replace what is there.
  virtual void adopt(std::unique_ptr<Loaded> loaded) noexcept = 0;

 private:
  std::vector<GradientEntry> entries_with_gradient(const ParameterGroup& group, size_t first_index) const;
  std::vector<Map> read_groups(const Map& state_dict) const;
  std::vector<std::optional<Map>> read_states(const Map& state_dict) const;

  double default_lr_;
  double default_weight_decay_;
  bool keep_gradient_memory_ = true;
  std::vector<ParameterGroup> groups_;
  std::vector<at::Tensor> parameters_;  // of all groups
};

}  // namespace accel::optim
