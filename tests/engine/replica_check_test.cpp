// SPDX-License-Identifier: Apache-2.0
// Replicas whose bits differ are found, and the rank at fault and its first tensor are named on all ranks.
#include "accelerator/replicas/replica_check.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/replicas/tensor_digest.hpp"
#include "accelerator_ranks.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/settings/checkpoint/project.hpp"
#include "config/generated/settings/training_loop/local_sgd.hpp"
#include "expect_error.hpp"
#include "expert_model_fixture.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "optim/parameter_optimizer.hpp"
#include "optim/rules/rules.hpp"
#include "os/host_name.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "split_model_fixture.hpp"

namespace accel::accelerator {
namespace replica_check_test {

using tests::AcceleratorPtr;

void flip_bit(const at::Tensor& tensor, int64_t bit) {
  static_cast<uint8_t*>(tensor.mutable_data_ptr())[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
}

// x -> (body + head) * x, with moments.
struct Training {
  explicit Training(AcceleratorPtr by) : accelerator(std::move(by)) {
    auto module = std::make_shared<nn::CallbackModule>("TwoWeights");
    for (const char* const name : {"body", "head"}) module->add_parameter(name, at::full({3}, 1.0, at::kFloat), true);
    module->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
      return (self.parameter(0) + self.parameter(1)) * inputs[0].toTensor();
    });
    inner = module;
    auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.1}});
    plain->add_group(inner->parameters(), std::nullopt, std::nullopt);
    model = accelerator->preparation().prepare_model(inner);
    optimizer = accelerator->preparation().prepare_optimizer(plain);
  }

  void step() const {
    const double x = accelerator->state().process_index() + 1;
    accelerator->backward().run(model->call(nn::Inputs{at::full({3}, x, at::kFloat)}).toTensor().sum());
    optimizer->step();
    optimizer->zero_grad(true);
  }
  at::Tensor parameter(const std::string& name) const { return nn::find_tensor(*inner, name); }
  at::Tensor moment(const std::string& parameter) const {
    const c10::IValue state = optimizer->state_dict();
    for (const auto& member : state.toGenericDict().at("state").toGenericDict()) {
      const c10::IValue key = member.key();
      const bool is_head = key.isInt() ? key.toInt() == 1 : key.toStringRef() == "1";
      if (is_head == (parameter == "head")) return member.value().toGenericDict().at("exp_avg").toTensor();
    }
    return {};
  }
  int check() const { return accelerator->preparation().replicas().run(); }
  bool is_rank(int rank) const { return accelerator->state().process_index() == rank; }

  AcceleratorPtr accelerator;
  nn::ModulePtr inner, model;
  std::shared_ptr<optim::Optimizer> optimizer;
};

// The errors of all ranks, which must be the same, and CORRUPT.
std::string error_of_all(int ranks, const std::function<void(const Training&)>& body,
                         const StateSettings& settings = {}) {
  std::mutex mutex;
  std::vector<std::string> errors;
  tests::run_accelerators(ranks, settings, [&](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    try {
      body(training);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kCorrupt) << error.message();
      const std::lock_guard<std::mutex> lock(mutex);
      errors.push_back(error.message());
    }
    EXPECT_NO_THROW(accelerator->state().communicator()->barrier());  // the group stays usable
  });
  EXPECT_EQ(errors.size(), static_cast<size_t>(ranks));
  EXPECT_EQ(std::set<std::string>(errors.begin(), errors.end()).size(), 1U);
  return errors.empty() ? "" : errors.front();
}

void expect_says(const std::string& error, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error << "\nlacks: " << part;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(ReplicaCheck, EqualRanksAgree) {
  for (const int ranks : {1, 2, 3})
    tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
      const Training training(accelerator);
      EXPECT_EQ(training.check(), ranks);
      for (int step = 0; step < 3; step++) training.step();
      EXPECT_EQ(training.check(), ranks);
    });
}

TEST(ReplicaCheck, NamesTheRankAndTheParameterOfOneFlippedBit) {
  const std::string error = error_of_all(3, [](const Training& training) {
    training.step();
    if (training.is_rank(1)) flip_bit(training.parameter("head"), 70);
    training.check();
  });
  expect_says(error, {"rank 1 (" + host_name() + ") has other bits in parameter 'head'", "than 2 of the 3 ranks",
                      "(1 of ", "load a checkpoint of an earlier step"});
}

TEST(ReplicaCheck, NamesTheFirstOfSeveral) {
  const std::string error = error_of_all(4, [](const Training& training) {
    training.step();
    if (training.is_rank(0))
      for (const char* const name : {"head", "body"}) flip_bit(training.parameter(name), 0);
    training.check();
  });
  expect_says(error, {"rank 0 (", "parameter 'body' (2 of ", "than 3 of the 4 ranks"});
}

TEST(ReplicaCheck, NamesAnOptimizerState) {
  const std::string error = error_of_all(3, [](const Training& training) {
    training.step();
    if (training.is_rank(2)) flip_bit(training.moment("head"), 9);
    training.check();
  });
  expect_says(error, {"rank 2 (", "'exp_avg' of parameter 'head' (1 of "});
}

TEST(ReplicaCheck, ComparesBitsAndNoValues) {
  const auto fill = [](const Training& training, double value) {
    const at::NoGradGuard no_grad;
    training.parameter("body").fill_(value);
  };
  tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    fill(training, std::numeric_limits<double>::quiet_NaN());
    EXPECT_EQ(training.check(), 2);
  });
  expect_says(error_of_all(3,
                           [&](const Training& training) {
                             fill(training, std::numeric_limits<double>::quiet_NaN());
                             if (training.is_rank(1)) flip_bit(training.parameter("body"), 0);  // another NaN
                             training.check();
                           }),
              {"rank 1 (", "parameter 'body'"});
  expect_says(error_of_all(3,
                           [&](const Training& training) {
                             fill(training, training.is_rank(2) ? -0.0 : 0.0);
                             training.check();
                           }),
              {"rank 2 (", "parameter 'body'"});
}

TEST(ReplicaCheck, NamesAllWhereNoneHasAMajority) {
  const std::string error = error_of_all(2, [](const Training& training) {
    if (training.is_rank(1)) flip_bit(training.parameter("body"), 31);
    training.check();
  });
  expect_says(error, {"rank 0 (", "rank 1 (", "have different bits in parameter 'body'", "no value is that of most"});
}

TEST(ReplicaCheck, RunsAfterAsManyUpdates) {
  StateSettings settings;
  settings.verify_replicas_every = 3;
  int updates = 0;
  const std::string error = error_of_all(
      3,
      [&](const Training& training) {
        training.step();
        if (training.is_rank(1)) flip_bit(training.parameter("head"), 10);
        for (int step = 1; step < 9; step++) {
          if (training.is_rank(0)) updates = step + 1;
          training.step();
        }
      },
      settings);
  EXPECT_EQ(updates, 3);
  expect_says(error, {"rank 1 (", "parameter 'head'"});
}

TEST(ReplicaCheck, IsOffByDefault) {
  tests::run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    if (training.is_rank(1)) flip_bit(training.parameter("body"), 1);
    for (int step = 0; step < 3; step++) EXPECT_NO_THROW(training.step());
  });
}

void set_project(const Training& training, const std::string& folder, int64_t limit) {
  ProjectSettings project;
  project.project_dir = folder;
  project.automatic_checkpoint_naming = true;
  project.total_limit = limit;
  training.accelerator->projects().project().set(project);
}

TEST(ReplicaCheck, RefusesToSaveWhatDiffers) {
  const checkpoint::tests::Folder folder;
  StateSettings settings;
  settings.verify_replicas_every = 1000;
  const std::string error = error_of_all(
      3,
      [&](const Training& training) {
        set_project(training, folder / "run", 1);
        for (int save = 0; save < 3; save++) {
          training.step();
          training.accelerator->projects().save_checkpoint(std::nullopt, {});
        }
        if (training.is_rank(1)) flip_bit(training.parameter("head"), 3);
        training.accelerator->projects().save_checkpoint(std::nullopt, {});
      },
      settings);
  expect_says(error, {"rank 1 (", "load '" + (folder / "run/checkpoints/checkpoint_2") + "'"});
  EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/checkpoint_2"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints/checkpoint_1"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints/checkpoint_3"));
}

// Saves whose ranks were not compared do not push out the one whose ranks were.
TEST(ReplicaCheck, RotationKeepsTheLastCheckpointThatRanksAgreedOn) {
  for (const bool asynchronous : {false, true}) {
    const checkpoint::tests::Folder folder;
    checkpoint::SaveOptions options;
    options.asynchronous = asynchronous;
    const auto exists = [&](int number) {
      return std::filesystem::exists(folder / ("run/checkpoints/checkpoint_" + std::to_string(number)));
    };
    const std::string error = error_of_all(3, [&](const Training& training) {
      ProjectCheckpoints& projects = training.accelerator->projects();
      const auto save = [&] {
        training.step();
        projects.save_checkpoint(std::nullopt, options);
        EXPECT_TRUE(projects.wait_for_checkpoint(std::chrono::seconds(30)));
        training.accelerator->state().communicator()->barrier();
      };
      set_project(training, folder / "run", 2);
      for (int i = 0; i < 2; i++) save();
      EXPECT_EQ(projects.agreed_checkpoint(), "");
      training.check();
      EXPECT_EQ(projects.agreed_checkpoint(), folder / "run/checkpoints/checkpoint_1");
      for (int i = 0; i < 4; i++) save();
      if (training.is_rank(0)) flip_bit(training.parameter("body"), 3);
      training.check();
    });
    expect_says(error, {"rank 0 (", "load '" + (folder / "run/checkpoints/checkpoint_1") + "', the last checkpoint"});
    EXPECT_TRUE(exists(1) && exists(5)) << asynchronous;
    for (const int number : {0, 2, 3, 4}) EXPECT_FALSE(exists(number)) << number << asynchronous;
  }
}

TEST(ReplicaCheck, LeavesAloneWhatDiffersOnPurpose) {
  StateSettings settings;
  settings.verify_replicas_every = 1;
  tests::run_accelerators(2, settings, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator);
    const auto local_sgd = accelerator->preparation().begin_local_sgd(training.model, 4, {}, nullptr);
    for (int step = 0; step < 2; step++) {
      EXPECT_NO_THROW(training.step());
      local_sgd->step();
    }
    tests::expect_error(Status::kInvalidState, "from the first step of local SGD on", [&] { training.check(); });
  });
}

// Trains on the mesh, where as many ranks as this must have equal values, and returns the error of `damage` on a rank.
std::string error_on_mesh(const tests::MeshSizes& sizes, const parallel::split_model_tests::Case& test, int replicas,
                          int damaged) {
  std::mutex mutex;
  std::set<std::string> errors;
  tests::on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
    parallel::split_model_tests::Training training(accelerator, test);
    for (int step = 0; step < 2; step++) training.step(step);
    ReplicaCheck& check = accelerator->preparation().replicas();
    EXPECT_EQ(check.run(), replicas);
    accelerator->state().communicator()->barrier();
    if (accelerator->state().process_index() == damaged) {
      for (const at::Tensor& parameter : training.inner()->parameters())
        if (parameter.numel() > 0) {
          flip_bit(parameter, 5);
          break;
        }
    }
    std::string error = tests::message_of([&] { check.run(); });
    const std::lock_guard<std::mutex> lock(mutex);
    errors.insert(std::move(error));
  });
  EXPECT_EQ(errors.size(), 1U);
  return *errors.begin();
}

TEST(ReplicaCheck, ComparesRanksAlongTheAxesThatDoNotCutTheModel) {
  using parallel::split_model_tests::gpt2;
  const auto gpt = parallel::split_model_tests::Case{"GPT-2", gpt2, "auto"};
  expect_says(error_on_mesh({2, 2, 1}, gpt, 2, 3), {"rank 1 (", ", rank 3 (", "have different bits in parameter '"});
  expect_says(error_on_mesh({3, 1, 2}, gpt, 3, 4), {"rank 4 (", "than 2 of the 3 ranks"});
  expect_says(error_on_mesh({1, 2, 1}, gpt, 1, 0), {"no error"});
}

TEST(ReplicaCheck, ComparesRanksWithTheSameExperts) {
  const auto experts = parallel::split_model_tests::Case{"experts", parallel::split_model_tests::with_experts, "none"};
  expect_says(error_on_mesh({2, 2, 1, 1, 2}, experts, 2, 2), {"rank 0 (", ", rank 2 (", "have different bits"});
}

std::vector<Digest128> digests_of(const at::Tensor& tensor) { return digest_tensors({tensor}); }

TEST(ReplicaCheckDigest, EachBitCounts) {
  for (const int64_t bytes : {1, 7, 8, 9, 24, 1031}) {
    const at::Tensor tensor = at::arange(bytes, at::kByte);
    const Digest128 digest = digests_of(tensor).front();
    const at::Tensor sums = sum_words(tensor);
    for (int64_t bit = 0; bit < bytes * 8; bit++) {
      flip_bit(tensor, bit);
      EXPECT_NE(digests_of(tensor).front(), digest) << bytes << ": " << bit;
      EXPECT_FALSE(sum_words(tensor).equal(sums)) << bytes << ": " << bit;
      flip_bit(tensor, bit);
    }
    EXPECT_EQ(digests_of(tensor).front(), digest);
    EXPECT_TRUE(sum_words(tensor).equal(sums));
  }
}

TEST(ReplicaCheckDigest, OfLargeTensorsHasAllOfTheirChunks) {
  constexpr int64_t kElements = (int64_t{9} << 20) / 4 + 3;  // of 4 bytes
  const at::Tensor tensor = at::arange(kElements, at::kInt);
  const Digest128 digest = digests_of(tensor).front();
  for (const int64_t element : {int64_t{0}, kElements / 2, int64_t{1} << 18, kElements - 1}) {
    flip_bit(tensor, element * 32);
    EXPECT_NE(digests_of(tensor).front(), digest) << element;
    flip_bit(tensor, element * 32);
  }
  // Chunks and words that change places are other ones.
  const at::Tensor halves = tensor.narrow(0, 0, int64_t{1} << 19).view({2, -1});
  EXPECT_NE(digests_of(halves.flip(0)).front(), digests_of(halves).front());
  EXPECT_FALSE(sum_words(halves.flip(0)).equal(sum_words(halves)));
}

TEST(ReplicaCheckDigest, IsOfTheElementsInOrder) {
  const at::Tensor tensor = at::arange(60, at::kFloat).view({5, 12});
  EXPECT_EQ(digests_of(tensor.t().contiguous().t()).front(), digests_of(tensor).front());
  EXPECT_NE(digests_of(tensor.view({12, 5})).front(), digests_of(tensor).front());
  EXPECT_NE(digests_of(tensor.view(at::kInt)).front(), digests_of(tensor).front());
  EXPECT_NE(digests_of(at::zeros({0})).front(), digests_of(at::zeros({0, 2})).front());
  const at::Tensor shifted = at::arange(70, at::kByte).narrow(0, 3, 60);  // not aligned
  EXPECT_EQ(digests_of(shifted).front(), digests_of(shifted.clone()).front());
  EXPECT_TRUE(sum_words(shifted).equal(sum_words(shifted.clone())));
}

ReplicaReport report(std::vector<uint64_t> items, bool is_repeatable = true) {
  return parse_replica_report(print(ReplicaReport{is_repeatable, std::move(items)}));
}

TEST(ReplicaCheckVote, AGroupWithAMajorityComesFirst) {
  const Digest128 a{1, 1}, b{2, 2}, c{3, 3};
  EXPECT_FALSE(find_disagreement({{0, 2}, {1, 3}}, {a, b, a, b}));
  const auto found = find_disagreement({{0, 1}, {2, 3, 4}}, {a, b, c, c, a});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->group, (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(found->minority, std::vector<int>{4});
  EXPECT_TRUE(find_disagreement({{0, 1, 2, 3}}, {a, a, b, b})->minority.empty());
  EXPECT_EQ(find_disagreement({{0, 1, 2, 3, 4}}, {b, a, a, c, a})->minority, (std::vector<int>{0, 3}));
}

// Two ranks have no majority, but one whose digests of the same memory differ is at fault.
TEST(ReplicaCheckVote, NamesTheRankThatCannotRepeatItsDigest) {
  const Disagreement tie{{0, 1}, {}};
  const ReplicaVerdict verdict = judge(tie, {report({7, 8}), report({7, 8}, /*is_repeatable=*/false)});
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_TRUE(verdict.is_unrepeatable);
  EXPECT_EQ(verdict.num_differing, 0U);
}

// Three ranks with three digests: each tensor has a majority of its own.
TEST(ReplicaCheckVote, NamesTheRankByItsFirstTensor) {
  const Disagreement tie{{0, 1, 2}, {}};
  const ReplicaVerdict verdict = judge(tie, {report({7, 8, 9}), report({7, 8, 1}), report({7, 2, 9})});
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_FALSE(verdict.is_unrepeatable);
  EXPECT_EQ(verdict.item, 1U);
  EXPECT_EQ(verdict.num_differing, 2U);
}

TEST(ReplicaCheckVote, ARankWithoutAnItemDiffers) {
  const ReplicaVerdict verdict = judge({{0, 1, 2}, {1}}, {report({7, 8}), report({7}), report({7, 8})});
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_EQ(verdict.item, 1U);
  tests::expect_error(Status::kCollectiveMismatch, "3 bytes about its replica", [] { parse_replica_report("123"); });
}

}  // namespace replica_check_test
}  // namespace accel::accelerator
