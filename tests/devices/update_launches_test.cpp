// SPDX-License-Identifier: Apache-2.0
// An update on a device takes a fixed number of launches, whatever the number of parameters, and computes what the CPU
// computes.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "device_fixture.hpp"
#include "engine/expect_error.hpp"
#include "optim/rules/rules.hpp"

namespace accel::optim {
namespace update_launches_test {

struct Case {
  std::string name;
  RulePtr (*rule)();
  int64_t most = 40;  // launches
  GivenSettings settings = {};
  bool only_matrices = false;
  double tolerance = 1e-5;  // in float32
};

std::ostream& operator<<(std::ostream& out, const Case& of) { return out << of.name; }

const Case kCases[] = {
    {"sgd", sgd_rule, 12},
    {"sgd_momentum", sgd_rule, 12, {{"momentum", 0.9}, {"weight_decay", 0.01}}},
    {"adam", [] { return adam_rule(WeightDecay::kInGradient); }, 12},
    {"adamw", [] { return adam_rule(WeightDecay::kDecoupled); }, 12},
    {"adamw_amsgrad", [] { return adam_rule(WeightDecay::kDecoupled); }, 12, {{"amsgrad", 1}}},
    {"nadam", nadam_rule, 40, {{"weight_decay", 0.01}}},
    {"radam", radam_rule, 40, {{"weight_decay", 0.01}}},
    {"adamax", adamax_rule, 40, {{"weight_decay", 0.01}}},
    {"adagrad", adagrad_rule, 40, {{"weight_decay", 0.01}}},
    {"rmsprop", rmsprop_rule, 40, {{"momentum", 0.9}, {"centered", 1}, {"weight_decay", 0.01}}},
    {"lion", lion_rule, 40, {{"weight_decay", 0.01}}},
    {"lamb", lamb_rule, 40, {{"weight_decay", 0.01}}},
    {"adafactor", adafactor_rule, 40, {{"weight_decay", 0.01}, {"maximize", 1}}},
    {"muon", muon_rule, 40, {{"weight_decay", 0.01}}, /*only_matrices=*/true, 5e-3},
    {"schedule_free_sgd", schedule_free_sgd_rule, 40, {{"weight_decay", 0.01}}},
    {"schedule_free_adamw", schedule_free_adamw_rule, 40, {{"weight_decay", 0.01}}},
};

// The same parameters on the CPU and on a device, with an optimizer each.
class Pair {
 public:
  Pair(const Case& of, c10::Device device, at::ScalarType dtype, UpdatePrecision precision, int count) {
    for (int i = 0; i < count; i++) {
      const bool is_matrix = of.only_matrices || i % 3 == 0;
      const auto shape = is_matrix ? std::vector<int64_t>{6, 4} : std::vector<int64_t>{4 + i % 2};
      host_.push_back(at::randn(shape, dtype).requires_grad_());
      own_.push_back(host_.back().detach().to(device).requires_grad_());
    }
    on_host_ = make_optimizer(of.rule(), of.settings);
    on_device_ = make_optimizer(of.rule(), of.settings);
    on_host_->add_group(host_, std::nullopt, std::nullopt);
    on_device_->add_group(own_, std::nullopt, std::nullopt);
    on_host_->set_update_precision(0, precision);
    on_device_->set_update_precision(0, precision);
  }

  void make_gradients() {
    for (size_t i = 0; i < host_.size(); i++) {
      host_[i].mutable_grad() = at::randn(host_[i].sizes(), host_[i].scalar_type());
      own_[i].mutable_grad() = host_[i].grad().to(own_[i].device());
    }
  }
  Optimizer& on_host() { return *on_host_; }
  Optimizer& on_device() { return *on_device_; }
  const std::vector<at::Tensor>& own() const { return own_; }
  void expect_equal(double tolerance) const {
    for (size_t i = 0; i < host_.size(); i++)
      EXPECT_TRUE(own_[i].detach().cpu().allclose(host_[i].detach(), tolerance, tolerance))
          << i << ": " << own_[i].detach().cpu() << " of the device, " << host_[i].detach() << " of the CPU";
  }

 private:
  std::vector<at::Tensor> host_, own_;
  std::shared_ptr<ParameterOptimizer> on_host_, on_device_;
};

class UpdateLaunches : public tests::DeviceTest, public testing::WithParamInterface<Case> {
 protected:
  // Of kernels, and of copies on the device.
  static int64_t launches() {
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.launches + statistics.copies;
  }
  static void train(at::ScalarType dtype, UpdatePrecision precision, double tolerance) {
    const Case& of = GetParam();
    for (const int count : {3, 150}) {
      Pair pair(of, device(), dtype, precision, count);
      int64_t before = 0;
      for (int step = 0; step < 3; step++) {  // the first one makes the states
        pair.make_gradients();
        before = is_simulated() ? launches() : 0;
        pair.on_device().step();
        pair.on_host().step();
      }
      if (is_simulated()) {
        EXPECT_LE(launches() - before, of.most) << count << " parameters";
      }
      pair.expect_equal(tolerance);
    }
  }
};

TEST_P(UpdateLaunches, OfFloat32) { train(at::kFloat, UpdatePrecision::kAsStored, GetParam().tolerance); }
TEST_P(UpdateLaunches, WithMasterWeights) { train(at::kBFloat16, UpdatePrecision::kMasterWeights, 1e-2); }
TEST_P(UpdateLaunches, WithStochasticRounding) { train(at::kBFloat16, UpdatePrecision::kStochasticRounding, 5e-2); }

INSTANTIATE_TEST_SUITE_P(Optimizers, UpdateLaunches, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

class CapturableUpdateLaunches : public tests::DeviceTest {};

TEST_F(CapturableUpdateLaunches, ReadTheRateOnTheDevice) {
  const Case cases[] = {
      {"sgd", sgd_rule, 0, {{"momentum", 0.9}}},
      {"adam", [] { return adam_rule(WeightDecay::kInGradient); }},
      {"adamw", [] { return adam_rule(WeightDecay::kDecoupled); }},
  };
  for (const Case& of : cases) {
    SCOPED_TRACE(of.name);
    Pair pair(of, device(), at::kFloat, UpdatePrecision::kAsStored, 3);
    for (int step = 0; step < 4; step++) {
      for (Optimizer* const optimizer : {&pair.on_host(), &pair.on_device()}) {
        optimizer->set_lr(0, 0.1 / (1 + step / 2));
        optimizer->write_device_rates();
      }
      pair.make_gradients();
      pair.on_host().step();
      pair.on_device().step();
    }
    pair.expect_equal(1e-5);
    ASSERT_TRUE(pair.on_device().groups()[0].device_rate);
    EXPECT_FALSE(pair.on_host().groups()[0].device_rate);
    // The value on the device counts, as in a replay.
    pair.on_device().groups()[0].device_rate->value.zero_();
    const at::Tensor before = pair.own()[0].detach().clone();
    pair.on_device().step();
    EXPECT_TRUE(pair.own()[0].detach().cpu().equal(before.cpu()));
    pair.on_device().set_lr(0, 0.5);
    pair.on_device().step();
    EXPECT_FALSE(pair.own()[0].detach().cpu().equal(before.cpu())) << "a step that is not captured writes the rate";
  }
  Pair lion({"lion", lion_rule}, device(), at::kFloat, UpdatePrecision::kAsStored, 1);
  tests::expect_error(Status::kUnsupported, "\"lion\" read no rate on the device",
                      [&] { lion.on_device().write_device_rates(); });
}

class QuantizedUpdateLaunches : public tests::DeviceTest {
 protected:
  // The mean square of what is left of random numbers that are brought to 0, with parameters of several sizes.
  static double rest_of(RulePtr rule, c10::Device device, at::ScalarType dtype, UpdatePrecision precision) {
    const auto optimizer = make_optimizer(std::move(rule), {{"lr", 0.02}});
    std::vector<at::Tensor> own;
    std::vector<std::vector<int64_t>> shapes(30, {70, 60});
    shapes.insert(shapes.end(), {{8192}, {5000}, {7}});
    const bool in_parts = precision == UpdatePrecision::kAsStored;
    if (in_parts) shapes.push_back({1100, 1000});  // larger than what is decoded at once
    for (const auto& shape : shapes) own.push_back(at::ones(shape, dtype).to(device).requires_grad_());
    optimizer->add_group(own, std::nullopt, std::nullopt);
    optimizer->set_update_precision(0, precision);
    int64_t before = 0;
    for (int step = 0; step < 6; step++) {
      for (const at::Tensor& parameter : own)
        parameter.mutable_grad() =
            (parameter.detach() + at::randn(parameter.sizes(), dtype).to(device) * 0.1).to(dtype);
      tensor::synchronize(device);
      before = counted();
      optimizer->step();
    }
    if (is_simulated() && !device.is_cpu()) {
      EXPECT_LE(counted() - before, in_parts ? 80 : 40);
    }
    double rest = 0;
    for (const at::Tensor& parameter : own)
      rest += parameter.detach().cpu().to(at::kDouble).square().mean().item<double>();
    return rest / static_cast<double>(own.size());
  }
  static int64_t counted() {
    if (!is_simulated()) return 0;
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.launches + statistics.copies + 1000 * statistics.host_waits;
  }
};

TEST_F(QuantizedUpdateLaunches, TrainAsOnTheCpu) {
  const auto adamw = [] { return adam_rule(WeightDecay::kDecoupled); };
  for (const auto precision : {UpdatePrecision::kAsStored, UpdatePrecision::kMasterWeights}) {
    const auto dtype = precision == UpdatePrecision::kAsStored ? at::kFloat : at::kBFloat16;
    const double expected = rest_of(adamw_8bit_rule(), at::kCPU, dtype, precision);
    EXPECT_NEAR(rest_of(adamw_8bit_rule(), device(), dtype, precision) / expected, 1, 0.01);
    EXPECT_NEAR(rest_of(adamw(), device(), dtype, precision) / expected, 1, 0.05);
  }
}

TEST_F(QuantizedUpdateLaunches, StateIsThatOfTheCpu) {
  const auto make = [](c10::Device on, const at::Tensor& values) {
    auto optimizer = make_optimizer(adamw_8bit_rule());
    optimizer->add_group({values.to(on, at::kFloat, false, /*copy=*/true).requires_grad_()}, std::nullopt,
                         std::nullopt);
    return optimizer;
  };
  const at::Tensor values = at::randn({90, 50});
  const auto on_device = make(device(), values), on_host = make(at::kCPU, values);
  const at::Tensor parameter = on_device->parameters()[0];
  parameter.mutable_grad() = at::randn({90, 50}).to(device());
  on_device->step();
  on_host->load_state_dict(on_device->state_dict());
  EXPECT_EQ(on_host->state_bytes(), on_device->state_bytes());
  const auto again = make(device(), values);
  again->load_state_dict(on_host->state_dict());
  const auto state_of = [](const Optimizer& optimizer, const char* key) {
    const auto states = optimizer.state_dict().toGenericDict().at("state").toGenericDict();
    return states.begin()->value().toGenericDict().at(key).toTensor().cpu();
  };
  for (const char* const key : {"exp_avg", "exp_avg_sq"}) {
    EXPECT_TRUE(state_of(*on_host, key).equal(state_of(*on_device, key))) << key;
    EXPECT_TRUE(state_of(*again, key).equal(state_of(*on_device, key))) << key;
    // A code has four bits of precision.
    const at::Tensor gradient = parameter.grad().cpu();
    const at::Tensor exact = std::string(key) == "exp_avg" ? gradient * 0.1 : gradient.square() * 0.001;
    EXPECT_TRUE(state_of(*on_device, key).allclose(exact, 0.13, 1e-5)) << key;
  }
}

class LargeUpdateLaunches : public tests::DeviceTest {
 protected:
  // The memory that a step takes for itself.
  static int64_t memory_of_step(const Case& of, at::ScalarType dtype, UpdatePrecision precision) {
    const auto optimizer = make_optimizer(of.rule(), of.settings);
    const auto options = at::TensorOptions(device()).dtype(dtype);
    const std::vector<at::Tensor> own = {at::zeros({2000, 2001}, options).requires_grad_(),
                                         at::zeros({1000, 1000}, options).requires_grad_(),
                                         at::zeros({7}, options).requires_grad_()};
    optimizer->add_group(own, std::nullopt, std::nullopt);
    optimizer->set_update_precision(0, precision);
    for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::ones_like(parameter);
    optimizer->step();  // makes the states
    tensor::synchronize(device());
    tensor::reset_peak_memory(device());
    const int64_t before = allocated();
    optimizer->step();
    tensor::synchronize(device());
    const int64_t peak = tensor::device_memory(device()).peak_allocated;
    for (const at::Tensor& parameter : own)  // each part of them is updated
      EXPECT_TRUE(parameter.detach().ne(0).all().cpu().item<bool>());
    return peak - before;
  }
};

TEST_F(LargeUpdateLaunches, TakeLittleMemory) {
  constexpr int64_t kMost = 64 << 20;
  const Case rmsprop = {"rmsprop", rmsprop_rule, 0, {{"momentum", 0.9}, {"centered", 1}}};
  const Case adamw = {"adamw", [] { return adam_rule(WeightDecay::kDecoupled); }};
  const Case adamw_8bit = {"adamw_8bit", adamw_8bit_rule};
  EXPECT_LE(memory_of_step(adamw_8bit, at::kFloat, UpdatePrecision::kAsStored), kMost);
  EXPECT_LE(memory_of_step(adamw, at::kFloat, UpdatePrecision::kAsStored), 1 << 20);
  EXPECT_LE(memory_of_step(rmsprop, at::kFloat, UpdatePrecision::kAsStored), kMost);
  for (const auto precision : {UpdatePrecision::kMasterWeights, UpdatePrecision::kStochasticRounding})
    for (const Case& of : {rmsprop, adamw}) EXPECT_LE(memory_of_step(of, at::kBFloat16, precision), kMost);
}

}  // namespace update_launches_test
}  // namespace accel::optim
