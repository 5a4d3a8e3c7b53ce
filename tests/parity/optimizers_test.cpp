// SPDX-License-Identifier: Apache-2.0
// Every optimizer against torch.optim: parameters after some steps, state dicts in both directions.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/maximum.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "fixture.hpp"
#include "optim/rules/rules.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace optimizers_test {

optim::RulePtr rule_of(const std::string& name) {
  static const std::map<std::string, optim::RulePtr (*)()> kRules = {
      {"sgd", optim::sgd_rule},
      {"adam", [] { return optim::adam_rule(optim::WeightDecay::kInGradient); }},
      {"adamw", [] { return optim::adam_rule(optim::WeightDecay::kDecoupled); }},
      {"adagrad", optim::adagrad_rule},
      {"rmsprop", optim::rmsprop_rule},
      {"adamax", optim::adamax_rule},
      {"nadam", optim::nadam_rule},
      {"radam", optim::radam_rule},
      {"adafactor", optim::adafactor_rule},
      {"muon", optim::muon_rule},
      {"lion", optim::lion_rule},
      {"lamb", optim::lamb_rule}};
  return kRules.at(name)();
}

std::vector<at::Tensor> tensors(const c10::IValue& list) {
  std::vector<at::Tensor> tensors;
  for (const auto& item : list.toListRef()) tensors.push_back(item.toTensor());
  return tensors;
}

class Recorded {
 public:
  explicit Recorded(const c10::IValue& input, const std::vector<at::Tensor>& start)
      : optimizer_(optim::make_optimizer(rule_of(member(input, "optimizer").toStringRef()), settings(input))) {
    for (const at::Tensor& tensor : start) parameters_.push_back(tensor.clone().set_requires_grad(true));
    const auto counts = integers(member(input, "groups"));
    const double lr = member(member(input, "settings"), "lr").toDouble();
    const auto second = parameters_.begin() + counts[0];
    optimizer_->add_group({parameters_.begin(), second}, std::nullopt, std::nullopt);
    optimizer_->add_group({second, parameters_.end()}, lr / 2, 0.0);
    for (const auto& step : member(input, "gradients").toListRef()) gradients_.push_back(tensors(step));
  }

  void run(size_t begin, size_t end) {
    for (size_t step = begin; step < end; ++step) {
      for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[step][i].clone();
      EXPECT_TRUE(optimizer_->step());
    }
  }
  void run_from(size_t begin) { run(begin, gradients_.size()); }

  optim::ParameterOptimizer& optimizer() { return *optimizer_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  static optim::GivenSettings settings(const c10::IValue& input) {
    optim::GivenSettings given;
    for (const auto& entry : member(input, "settings").toGenericDict())
      given.emplace_back(entry.key().toStringRef().c_str(), entry.value().toDouble());
    return given;
  }

  std::shared_ptr<optim::ParameterOptimizer> optimizer_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::vector<at::Tensor>> gradients_;
};

// Largest difference, relative to 1 or the larger number.
double difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().to(at::kDouble);
  const at::Tensor y = b.detach().to(at::kDouble);
  return ((x - y).abs() / at::maximum(x.abs(), y.abs()).clamp_min(1)).max().item<double>();
}

void expect_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LE(difference(found[i], expected[i]), tolerance) << "parameter " << i << "\n" << found[i] << expected[i];
}

void expect_state(const c10::IValue& found, const c10::IValue& expected, double tolerance) {
  const auto own = found.toGenericDict();
  const auto torch = expected.toGenericDict();
  size_t keys = 0;
  for (const auto& entry : torch) {
    const std::string& key = entry.key().toStringRef();
    if (entry.value().isNone()) continue;
    ++keys;
    ASSERT_TRUE(own.contains(key)) << key;
    const at::Tensor tensor = own.at(key).toTensor();
    EXPECT_EQ(tensor.sizes(), entry.value().toTensor().sizes()) << key;
    EXPECT_LE(difference(tensor, entry.value().toTensor()), tolerance) << key;
  }
  EXPECT_EQ(own.size(), keys);
}

// torch has a 0 where nobody asked for another number, and we 0.0.
bool same(const c10::IValue& a, const c10::IValue& b) {
  const auto is_number = [](const c10::IValue& value) { return value.isInt() || value.isDouble(); };
  if (is_number(a) && is_number(b)) return a.toScalar().toDouble() == b.toScalar().toDouble();
  return tree::equal(a, b);
}

// Our groups have every key of torch's with its value; "foreach" and "fused" only choose an implementation.
void expect_group(const c10::IValue& found, const c10::IValue& expected) {
  const auto own = found.toGenericDict();
  for (const auto& entry : expected.toGenericDict()) {
    const std::string& key = entry.key().toStringRef();
    ASSERT_TRUE(own.contains(key)) << key;
    if (key == "fused" || (key == "adjust_lr_fn" && entry.value().isNone())) continue;
    EXPECT_TRUE(same(own.at(key), entry.value())) << key << ": " << own.at(key) << " for " << entry.value();
  }
}

void expect_state_dict(const c10::IValue& found, const c10::IValue& expected, double tolerance) {
  const auto states = member(expected, "state").toGenericDict(), found_states = member(found, "state").toGenericDict();
  for (const auto& entry : states) {
    SCOPED_TRACE("state of parameter " + entry.key().toStringRef());
    const auto own = found_states.find(int64_t{std::stoi(entry.key().toStringRef())});
    expect_state(own == found_states.end() ? tree::new_map() : own->value(), entry.value(), tolerance);
  }
  const auto own_groups = member(found, "param_groups");
  const auto groups = member(expected, "param_groups");
  ASSERT_EQ(own_groups.toListRef().size(), groups.toListRef().size());
  for (size_t i = 0; i < groups.toListRef().size(); ++i) expect_group(own_groups.toListRef()[i], groups.toListRef()[i]);
}

double tolerance_of(const c10::IValue& input) {
  // Muon multiplies in bfloat16, whose last bits depend on the processor.
  if (member(input, "optimizer").toStringRef() == "muon") return 2e-3;
  const bool is_double = tensors(member(input, "parameters"))[0].scalar_type() == at::kDouble;
  return is_double ? 1e-7 : 2e-6;  // steps are float32 numbers in torch.optim, and corrections follow from them
}

TEST(OptimizersParity, StepsAndStateDictsAsTorch) {
  for (const auto& [name, input, expected] : read_cases("optimizers")) {
    SCOPED_TRACE(name);
    const double tolerance = tolerance_of(input);
    const auto before = static_cast<size_t>(member(input, "before").toInt());
    const auto state_dict = member(expected, "state_dict");

    Recorded straight(input, tensors(member(input, "parameters")));
    straight.run(0, before);
    expect_near(straight.parameters(), tensors(member(expected, "parameters_before")), tolerance);
    expect_state_dict(straight.optimizer().state_dict(), state_dict, tolerance);
    straight.run_from(before);
    expect_near(straight.parameters(), tensors(member(expected, "parameters")), tolerance);

    Recorded resumed(input, tensors(member(expected, "parameters_before")));
    resumed.optimizer().load_state_dict(state_dict);
    resumed.run_from(before);
    expect_near(resumed.parameters(), tensors(member(expected, "parameters")), tolerance);
  }
}

}  // namespace optimizers_test
}  // namespace accel::parity
