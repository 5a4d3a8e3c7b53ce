// SPDX-License-Identifier: Apache-2.0
// Update rule: the part of an optimizer that is specific to its kind, which is its settings, its state entries for each
// parameter, and the computation of updates. ParameterOptimizer does the rest.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"

namespace accel::optim {

// An entry of the optimizer state of each parameter, such as exp_avg.
struct StateEntry {
  enum class Kind : uint8_t {
    kLikeParameter,  // like the parameter, or float32 if updates are computed in float32
    kNumber,         // a float32 scalar on the CPU
    kRows,           // like the parameter with a last dimension of 1
    kColumns,        // like the parameter with a next to last dimension of 1
    kSigned8Bit,     // like the parameter, 8 bits per element: kernels/update/block_quantization.hpp
    kUnsigned8Bit,   // the same without sign
  };
  std::string key;  // in the state dict
  Kind kind = Kind::kLikeParameter;
  double initial = 0;
  bool is_optional = false;  // state dicts may lack it
  bool is_copy = false;      // is initialised with the parameter, not with `initial`
  bool is_float32 = false;   // float32 for half-precision parameters, whatever the precision of updates
};

struct StateValue {
  at::Tensor tensor;
  at::Tensor scales;  // of 8-bit entries, one per block
};

// The state of one parameter. Tensors are undefined until they are needed.
struct ParameterState {
  at::Tensor step;    // the number of updates: a float32 scalar, as in torch.optim
  at::Tensor master;  // the float32 master weight
  std::vector<StateValue> values;
};

// One parameter in one step.
struct Update {
  size_t index;          // of the parameter, across all groups
  at::Tensor parameter;  // to be updated: the parameter or its float32 copy
  at::Tensor gradient;   // like the parameter in shape and memory order
  ParameterState* state;
  bool is_first = false;             // an entry was created for this step
  at::Tensor rounded = {};           // also receives the updated parameter
  bool stochastic_rounding = false;  // the parameter, into bfloat16
  at::Tensor overflow = {};          // a float32 flag on the device: if it is set, nothing changes
  double step() const;               // including this one; for rules that count steps
  std::optional<at::Tensor> overflow_if_any() const {
    return overflow.defined() ? std::optional<at::Tensor>(overflow) : std::nullopt;
  }
  at::Tensor& state_tensor(size_t i) const { return state->values[i].tensor; }
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // "adam", as in the name of its options.
  const std::string& name() const { return name_; }
  double default_lr() const { return default_lr_; }
  double default_weight_decay() const { return default_weight_decay_; }
  c10::ArrayRef<Setting> settings() const { return settings_; }
  // Further constant keys of the groups in torch.optim.
  struct Constant {
    const char* key;
    enum class Value : uint8_t { kNone, kFalse, kTrue } value;
  };
  virtual c10::ArrayRef<Constant> constants() const { return {}; }
  virtual void check(const ParameterGroup&) const {}
  virtual void check_parameter(const at::Tensor&, size_t) const {}

  virtual c10::ArrayRef<StateEntry> state_entries() const = 0;
  virtual bool needs(size_t, const ParameterGroup&, const at::Tensor&) const { return true; }
  virtual StateEntry::Kind kind(size_t entry, const at::Tensor&) const { return state_entries()[entry].kind; }
  virtual double initial(size_t entry, const ParameterGroup&) const { return state_entries()[entry].initial; }
  virtual bool counts_steps() const { return true; }
  // Whether the step is stored on the device of the parameter, as LibTorch's fused kernels need it.
  virtual bool keeps_step_on_device() const { return false; }
  // Whether its updates on a device read the rate of the group there, and no other number of the host that changes.
  virtual bool reads_device_rate() const { return false; }
  // Whether it reads and writes float16 and bfloat16 parameters on the CPU itself. Other rules get float32 copies.
  virtual bool rounds() const { return false; }
  // Whether each element is updated by its own gradient and state alone, so that a rank can update a part of a
  // parameter.
  virtual bool is_elementwise() const { return false; }
  // Whether its kernels of devices read Update::overflow. For other rules the former values are put back.
  virtual bool reads_overflow() const { return false; }
  // Whether an update is code of the program, which only it can take back.
  virtual bool is_program() const { return false; }
  // Whether parameters are updated during backward, and step() does nothing.
  virtual bool updates_in_backward() const { return false; }

  // For rules whose parameters are trained and evaluated at different points (schedule-free): each switch moves the
  // parameters by a share of the way to the first state entry. `mode` is the index of the setting with the current
  // mode.
  struct Modes {
    size_t mode;
    double to_evaluation;
    double to_training;
  };
  virtual std::optional<Modes> modes(const ParameterGroup&) const { return std::nullopt; }

  // Updates of one group that share a device and a dtype; never empty. Runs without autograd.
  virtual void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const = 0;
  // Whether its updates on a device can be recorded although the host counts steps, or computes rates from them.
  virtual bool records_numbers() const { return false; }

 protected:
  UpdateRule() = default;
  // Settings by their names in an options struct, which also has the defaults of lr and weight_decay.
  UpdateRule(const OptionTable& options, std::vector<Setting> names, const std::vector<Setting>& further = {});
  void set_default_weight_decay(double value) { default_weight_decay_ = value; }

 private:
  std::string name_ = "of a callback";
  std::vector<Setting> settings_;
  double default_lr_ = 1e-3;
  double default_weight_decay_ = 0;
};

}  // namespace accel::optim
