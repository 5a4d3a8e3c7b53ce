// What one kind of optimizer is: its settings, what it keeps of each parameter, and how it updates. Everything else is
// ParameterOptimizer's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"

namespace accel::optim {

// Something that is kept of each parameter.
struct Slot {
  enum class Kind : uint8_t {
    kLike,           // as the parameter, or float32 where updates are computed so
    kNumber,         // a float32 number on the CPU
    kRows,           // as the parameter with a last dimension of 1
    kColumns,        // as the parameter with a last dimension but one of 1
    kSignedBytes,    // as the parameter, a byte an element; see kernels/block_quantization.hpp
    kUnsignedBytes,  // the same without sign
  };
  std::string key;  // of the state dict
  Kind kind = Kind::kLike;
  double initial = 0;
  bool may_lack = false;  // a state dict that lacks it is good: it starts anew
  bool is_copy = false;   // begins as the parameter, not with `initial`
  bool is_wide = false;   // float32 for parameters in half precision, however they are updated
};

struct SlotValue {
  at::Tensor tensor;
  at::Tensor scales;  // of bytes, one a block
};

// What is kept of one parameter. Everything is undefined before it is needed.
struct ParameterState {
  at::Tensor step;    // the number of updates: a float32 number, as in torch.optim
  at::Tensor master;  // the float32 parameter
  std::vector<SlotValue> slots;
};

// One parameter in one step.
struct Update {
  size_t index;          // of the parameter, counted through all groups
  at::Tensor parameter;  // what is to be updated: the parameter or its float32 copy
  at::Tensor gradient;   // like the parameter in shape and memory order
  ParameterState* state;
  bool is_first = false;             // a slot was made for this step
  at::Tensor rounded = {};           // receives the parameter after the update
  bool stochastic_rounding = false;  // the parameter, into bfloat16
  double step() const;               // this one included; of rules that count
  at::Tensor& slot(size_t i) const { return state->slots[i].tensor; }
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  double default_lr() const { return default_lr_; }
  double default_weight_decay() const { return default_weight_decay_; }
  c10::ArrayRef<Setting> settings() const { return settings_; }
  // What torch.optim has in its groups beside that: whether a key is false, true or nothing.
  struct Constant {
    const char* key;
    enum class Value : uint8_t { kNone, kFalse, kTrue } value;
  };
  virtual c10::ArrayRef<Constant> constants() const { return {}; }
  virtual void check(const ParameterGroup&) const {}
  virtual void check_parameter(const at::Tensor&, size_t) const {}

  virtual c10::ArrayRef<Slot> slots() const = 0;
  virtual bool needs(size_t, const ParameterGroup&, const at::Tensor&) const { return true; }
  virtual Slot::Kind kind(size_t slot, const at::Tensor&) const { return slots()[slot].kind; }
  virtual double initial(size_t slot, const ParameterGroup&) const { return slots()[slot].initial; }
  virtual bool counts_steps() const { return true; }
  // Where the number of steps lies; LibTorch's fused kernels want it beside the parameter.
  virtual bool keeps_step_on_device() const { return false; }
  // Whether it reads float16 and bfloat16 parameters on the CPU itself and rounds into them. Other rules are given
  // float32.
  virtual bool rounds() const { return false; }
  // Whether parameters are updated during backward, so that nothing is left for step().
  virtual bool updates_in_backward() const { return false; }

  // For parameters that are evaluated at another point than they are trained at: both ways go a share of the way to the
  // first slot. `mode` is the setting of the range kMode that says where they are.
  struct Modes {
    size_t mode;
    double to_evaluation;
    double to_training;
  };
  virtual std::optional<Modes> modes(const ParameterGroup&) const { return std::nullopt; }

  // Updates of one group that share a device and a dtype; never empty. Runs without autograd.
  virtual void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const = 0;

 protected:
  UpdateRule() = default;
  // Settings by their names in a struct of the header, which also has the defaults of lr and weight_decay.
  UpdateRule(const OptionTable& options, std::vector<Setting> names, const std::vector<Setting>& further = {});
  void set_default_weight_decay(double value) { default_weight_decay_ = value; }

 private:
  std::vector<Setting> settings_;
  double default_lr_ = 1e-3;
  double default_weight_decay_ = 0;
};

}  // namespace accel::optim
