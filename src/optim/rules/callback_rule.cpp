// SPDX-License-Identifier: Apache-2.0
// User-defined update rule: a callback of the application computes the update.
#include <unordered_set>

#include "base/error.hpp"
#include "optim/rules/rules.hpp"

namespace accel::optim {
namespace {

class CallbackRule final : public UpdateRule {
 public:
  CallbackRule(std::vector<std::string> state_names, std::function<void(const CallbackUpdate&)> update)
      : update_(std::move(update)) {
    std::unordered_set<std::string> known{"step", "master_param"};  // what every state dict may have
    for (auto& name : state_names) {
      require(known.insert(name).second, Status::kInvalidArgument, "the state name \"", name,
              "\" is taken; expected names that differ, and from \"step\" and \"master_param\"");
      state_entries_.push_back({std::move(name)});
    }
  }

  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }
  bool is_program() const override { return true; }
  bool is_elementwise() const override { return true; }  // as the application says, see accel_optimizer_create()

  void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override {
    for (const Update& update : updates) {
      CallbackUpdate given{update.parameter, update.gradient, {}, 0, group.lr, group.weight_decay};
      for (size_t entry = 0; entry < state_entries_.size(); ++entry) given.states.push_back(update.state_tensor(entry));
      given.step = static_cast<int64_t>(update.step());
      update_(given);
    }
  }

 private:
  std::vector<StateEntry> state_entries_;
  std::function<void(const CallbackUpdate&)> update_;
};

}  // namespace

RulePtr callback_rule(std::vector<std::string> state_names, std::function<void(const CallbackUpdate&)> update) {
  return std::make_unique<CallbackRule>(std::move(state_names), std::move(update));
}

}  // namespace accel::optim
