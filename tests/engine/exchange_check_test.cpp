// SPDX-License-Identifier: Apache-2.0
// What an optimizer's step says about gradients that no exchange of the ranks has covered.
#include "accelerator/steps/exchange_check.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "accelerator/prepared_model.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "base/log.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "optim/optimizer.hpp"
#include "optim/parameter_optimizer.hpp"
#include "optim/rules/rules.hpp"
#include "parallel/localsgd/local_sgd.hpp"

namespace accel::accelerator {
namespace exchange_check_test {

using OptimizerPtr = std::shared_ptr<optim::Optimizer>;
using tests::AcceleratorPtr;

constexpr int kRanks = 2;

// x -> (body + head) * x
nn::ModulePtr two_weights() {
  auto model = std::make_shared<nn::CallbackModule>("TwoWeights");
  for (const char* const name : {"body", "head"}) model->add_parameter(name, at::full({1}, 1.0, at::kFloat), true);
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    return (module.parameter(0) + module.parameter(1)) * inputs[0].toTensor();
  });
  return model;
}

// The warnings of all ranks while `body` runs.
std::vector<std::string> warnings_of(const StateSettings& options,
                                     const std::function<void(const AcceleratorPtr&)>& body) {
  struct Warnings {
    std::mutex mutex;
    std::vector<std::string> texts;
  } warnings;
  const auto note = [](int32_t, const char* message, void* user_data) {
    auto& all = *static_cast<Warnings*>(user_data);
    const std::string text = message;
    if (text.find("have not exchanged") == std::string::npos) return;
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.texts.push_back(text);
  };
  set_log_callback(note, &warnings, nullptr);
  tests::run_accelerators(kRanks, options, body);
  set_log_callback(nullptr, nullptr, nullptr);
  return warnings.texts;
}

// A model with its optimizer, prepared.
struct Training {
  explicit Training(AcceleratorPtr by, const PrepareModelSettings& settings = {}, bool frozen_head = false)
      : accelerator(std::move(by)), inner(two_weights()) {
    auto plain = optim::make_optimizer(optim::sgd_rule());
    plain->add_group(inner->parameters(), 0.1, std::nullopt);
    if (frozen_head) inner->parameter(1).set_requires_grad(false);
    model = accelerator->preparation().prepare_model(inner, settings);
    optimizer = accelerator->preparation().prepare_optimizer(plain);
    inner->parameter(1).set_requires_grad(true);
  }

  void backward(const nn::ModulePtr& called) const {
    const double x = accelerator->state().process_index() + 1;
    accelerator->backward().run(called->call(nn::Inputs{at::full({1}, x, at::kFloat)}).toTensor().sum());
  }
  void update(bool set_to_none = true) const {
    optimizer->step();
    optimizer->zero_grad(set_to_none);
  }

  AcceleratorPtr accelerator;
  nn::ModulePtr inner, model;
  OptimizerPtr optimizer;
};

void expect_one_warning_of_each_rank(const std::vector<std::string>& warnings, const std::string& says) {
  ASSERT_EQ(warnings.size(), static_cast<size_t>(kRanks));
  for (const std::string& text : warnings) EXPECT_NE(text.find(says), std::string::npos) << text;
}

StateSettings accumulating(int64_t steps) {
  StateSettings options;
  options.gradient_accumulation_steps = steps;
  return options;
}

// Regression: a model that was called around its exchange trained other weights on each rank, without a word.
TEST(ExchangeCheck, NamesGradientsOfTheModelInsideOnce) {
  const auto warnings = warnings_of({}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    for (int step = 0; step < 3; step++) {
      training.backward(training.inner);
      training.update();
    }
  });
  expect_one_warning_of_each_rank(warnings, "the gradients of 'body', 'head', and");
  for (const std::string& text : warnings) EXPECT_NE(text.find("call the model that was prepared"), std::string::npos);
}

// What the first backward exchanged is not enough.
TEST(ExchangeCheck, NamesGradientsThatWereAddedAfterAnExchange) {
  const auto warnings = warnings_of({}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    training.backward(training.model);
    training.backward(training.inner);
    training.update();
  });
  expect_one_warning_of_each_rank(warnings, "'body'");
}

TEST(ExchangeCheck, NamesParametersThatWereFrozenWhenTheModelWasPrepared) {
  const auto warnings = warnings_of({}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator, {}, /*frozen_head=*/true);
    for (int step = 0; step < 3; step++) {
      training.backward(training.model);
      training.update();
    }
  });
  expect_one_warning_of_each_rank(warnings, "the gradients of 'head', and");
  for (const std::string& text : warnings) EXPECT_NE(text.find("required no gradient when"), std::string::npos);
}

TEST(ExchangeCheck, NamesGradientsOfAClosure) {
  const auto warnings = warnings_of({}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    training.optimizer->step_by([&] { training.backward(training.inner); });
  });
  expect_one_warning_of_each_rank(warnings, "'body'");
}

TEST(ExchangeCheck, NamesWhatAnUpdateAfterNoSyncUses) {
  const auto warnings = warnings_of({}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    {
      const NoSyncGuard no_sync({training.model});
      training.backward(training.model);
    }
    training.update();
  });
  expect_one_warning_of_each_rank(warnings, "outside of no_sync");
}

TEST(ExchangeCheck, IsSilentAboutWhatWasExchanged) {
  DdpSettings unused, fixed;
  unused.find_unused_parameters = true;
  fixed.static_graph = true;
  for (const DdpSettings& ddp : {DdpSettings{}, unused, fixed}) {
    const auto warnings = warnings_of(accumulating(2), [&](const AcceleratorPtr& accelerator) {
      const Training training(accelerator, tests::prepared_by(ddp));
      for (int step = 0; step < 6; step++) {
        const MicroBatch micro_batch(accelerator, {training.model});
        training.backward(training.model);
        training.update(/*set_to_none=*/step > 3);
      }
    });
    EXPECT_EQ(warnings, std::vector<std::string>{});
  }
}

// The exchange in the end covers what the model inside has accumulated.
TEST(ExchangeCheck, IsSilentAboutWhatALaterExchangeCovers) {
  const auto warnings = warnings_of({}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    training.backward(training.inner);
    training.backward(training.model);
    training.update();
  });
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST(ExchangeCheck, IsSilentWhereTheExchangeIsOffOnPurpose) {
  const auto warnings = warnings_of({}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    {
      const NoSyncGuard no_sync({training.model});
      training.backward(training.model);
      training.update();
    }
    const parallel::LocalSgd local_sgd(require_prepared(training.model), accelerator->state().communicator(), 2, {},
                                       nullptr);
    training.backward(training.model);
    training.update();
  });
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST(ExchangeCheck, IsSilentAboutLomo) {
  const auto warnings = warnings_of({}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = two_weights();
    auto plain = optim::make_optimizer(optim::lomo_rule());
    plain->add_group(inner->parameters(), std::nullopt, std::nullopt);
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    accelerator->backward().run_lomo(model->call(nn::Inputs{at::full({1}, 1.0)}).toTensor().sum(), 0.1);
    optimizer->step();
  });
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST(ExchangeCheck, IsSilentAboutGradientsThatZeroGradHasTaken) {
  for (const bool set_to_none : {true, false}) {
    const auto warnings = warnings_of({}, [&](const AcceleratorPtr& accelerator) {
      const Training training(accelerator);
      training.backward(training.inner);
      training.optimizer->zero_grad(set_to_none);
      training.optimizer->step();
    });
    EXPECT_EQ(warnings, std::vector<std::string>{}) << set_to_none;
  }
}

// Two models share the weights, and the optimizer of one has none of the other's.
TEST(ExchangeCheck, IsSilentAboutGradientsThatAnotherModelExchanges) {
  const auto warnings = warnings_of({}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator), other(accelerator);
    const nn::ModulePtr sharing = accelerator->preparation().prepare_model(training.inner);
    training.backward(sharing);
    other.backward(other.inner);
    training.update();
  });
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

}  // namespace exchange_check_test
}  // namespace accel::accelerator
