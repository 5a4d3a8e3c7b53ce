// A rule whose update the host computes.
#include <unordered_set>

#include "base/error.hpp"
#include "optim/rules.hpp"

namespace accel::optim {
namespace {

class HostRule final : public UpdateRule {
 public:
  HostRule(std::vector<std::string> state_names, std::function<void(const HostUpdate&)> update)
      : update_(std::move(update)) {
    std::unordered_set<std::string> known{"step", "master_param"};  // what every state dict may have
    for (auto& name : state_names) {
      require(known.insert(name).second, Status::kInvalidArgument, "the state name \"", name,
              "\" is taken; expected names that differ, and from \"step\" and \"master_param\"");
      slots_.push_back({std::move(name)});
    }
  }

  c10::ArrayRef<Slot> slots() const override { return slots_; }

  void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override {
    for (const Update& update : updates) {
      HostUpdate given{update.parameter, update.gradient, {}, 0, group.lr, group.weight_decay};
      for (size_t slot = 0; slot < slots_.size(); ++slot) given.states.push_back(update.slot(slot));
      given.step = static_cast<int64_t>(update.step());
      update_(given);
    }
  }

 private:
  std::vector<Slot> slots_;
  std::function<void(const HostUpdate&)> update_;
};

}  // namespace

RulePtr host_rule(std::vector<std::string> state_names, std::function<void(const HostUpdate&)> update) {
  return std::make_unique<HostRule>(std::move(state_names), std::move(update));
}

}  // namespace accel::optim
