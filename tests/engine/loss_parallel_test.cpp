// SPDX-License-Identifier: Apache-2.0
// Loss parallel: the cross entropy of logits that are split over ranks is that of one process, by the bytes of
// theory.
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/record/flight_record.hpp"
#include "expect_error.hpp"
#include "nn/linear_cross_entropy.hpp"
#include "nn/split/split_classes.hpp"
#include "nn/split/split_operators.hpp"
#include "nn/split/split_sequence.hpp"
#include "parallel/regions/vocabulary_loss.hpp"
#include "rank_threads.hpp"
#include "tensor/autograd/loss.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace loss_parallel_test {

using tests::expect_error;

constexpr int64_t kClasses = 13, kFeatures = 5;  // uneven on 2, 3 and 4 ranks

at::Tensor numbers(const std::vector<int64_t>& sizes, double seed) {
  return at::linspace(-40.0 * seed, 53.0, c10::multiply_integers(sizes), at::kDouble).sin().mul(3).view(sizes);
}

at::Tensor targets(const std::vector<int64_t>& sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kLong).mul(7).remainder(kClasses).view(sizes);
}

at::Tensor leaf(const at::Tensor& values) { return values.detach().clone().set_requires_grad(true); }

at::Tensor own_part(const at::Tensor& whole, int64_t dim, const RankGroup& group) {
  const Share share = share_of(whole.size(dim), group->rank(), group->size());
  return whole.narrow(dim, share.begin, share.size);
}

bool near(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-12) {
  return a.sizes() == b.sizes() && at::allclose(a.to(at::kDouble), b.to(at::kDouble), tolerance, tolerance);
}

void on_ranks(const std::function<void(const RankGroup&)>& body) {
  for (const int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(size);
    tests::run_ranks(size, body);
  }
}

at::Tensor split(const at::Tensor& own, const RankGroup& group) {
  return class_scores(own, split_classes(group, kClasses, false), group);
}

// A loss with its arguments but the scores.
struct Loss {
  at::Tensor target;
  std::optional<at::Tensor> class_weight = std::nullopt;
  int64_t reduction = at::Reduction::Mean, ignore_index = -100;
  double label_smoothing = 0;

  at::Tensor operator()(const at::Tensor& scores) const {
    return at::cross_entropy_loss(scores, target, class_weight, reduction, ignore_index, label_smoothing);
  }
};

// Losses of rows have different factors, so that each gradient is seen.
at::Tensor weighted(const at::Tensor& loss) {
  return (loss * at::arange(1, loss.numel() + 1, loss.options()).div(3).view(loss.sizes())).sum();
}

void for_each_loss(const std::vector<int64_t>& rows, const std::function<void(const Loss&)>& body) {
  for (const int64_t reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum})
    for (const double smoothing : {0.0, 0.1})
      for (const bool has_weights : {false, true})
        for (const int64_t ignored : {-100, 7}) {  // 7 is a class of some targets
          Loss loss{targets(rows), std::nullopt, reduction, ignored, smoothing};
          if (has_weights) loss.class_weight = numbers({kClasses}, 0.2).add(4);
          if (ignored == -100 && loss.target.numel() > 1) loss.target.view({-1}).narrow(0, 1, 1).fill_(-100);
          body(loss);
        }
}

TEST(LossParallel, LossesAndGradientsAreThoseOfOneProcess) {
  on_ranks([](const RankGroup& group) {
    for (const auto& [sizes, dim] : std::vector<std::pair<std::vector<int64_t>, int64_t>>{
             {{6, kClasses}, 1}, {{kClasses}, 0}, {{2, kClasses, 3}, 1}, {{2, kClasses, 3, 2}, 1}}) {
      std::vector<int64_t> rows = sizes;
      rows.erase(rows.begin() + dim);
      for_each_loss(rows, [&, shape = sizes, along = dim](const Loss& loss) {
        const at::Tensor whole = leaf(numbers(shape, 0.7)), own = leaf(own_part(whole, along, group));
        const at::Tensor expected = loss(whole);
        weighted(expected).backward();
        const at::Tensor scores = split(own.movedim(along, -1), group).movedim(-1, along);
        const at::Tensor found = loss(scores);
        EXPECT_TRUE(near(found, expected)) << found << expected;
        weighted(found).backward();
        EXPECT_TRUE(near(own.grad(), own_part(whole.grad(), along, group)));
      });
    }
  });
}

// What a loss does with logits before: rows are left out and joined, the dtype is another one, scores are scaled.
TEST(LossParallel, ScoresAreKnownBehindOperatorsOnRows) {
  on_ranks([](const RankGroup& group) {
    const auto loss_of = [](const at::Tensor& logits) {
      const at::Tensor kept = logits.slice(1, 0, -1).to(at::kFloat).div(2);
      return tensor::cross_entropy(kept, targets({3, 5})).to(at::kDouble);
    };
    const at::Tensor whole = leaf(numbers({3, 6, kClasses}, 0.4)), own = leaf(own_part(whole, 2, group));
    const at::Tensor expected = loss_of(whole);
    expected.backward();
    const at::Tensor found = loss_of(split(own * 1, group));
    found.backward();
    EXPECT_TRUE(near(found, expected, 1e-6));
    EXPECT_TRUE(near(own.grad(), own_part(whole.grad(), 2, group), 1e-6));
  });
}

TEST(LossParallel, ScoresWithoutAGraphAreGathered) {
  on_ranks([](const RankGroup& group) {
    const at::Tensor whole = numbers({2, 3, kClasses}, 0.3);
    EXPECT_TRUE(split(own_part(whole, 2, group), group).equal(whole));
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(split(leaf(own_part(whole, 2, group)) * 1, group).equal(whole));
  });
}

// Half precision: rounded scores, sums of float32.
TEST(LossParallel, HalfPrecisionIsRoundedAsInOneProcess) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const at::Tensor whole = leaf(numbers({8, kClasses}, 0.3).to(at::kBFloat16)), own = leaf(own_part(whole, 1, group));
    const Loss loss{targets({8})};
    const at::Tensor expected = loss(whole.to(at::kFloat));
    expected.backward();
    const at::Tensor found = loss(split(own * 1, group));
    EXPECT_EQ(found.scalar_type(), at::kBFloat16);
    found.backward();
    EXPECT_TRUE(near(found, expected, 1e-2));
    EXPECT_TRUE(near(own.grad(), own_part(whole.grad(), 1, group), 1e-2));
  });
}

// The fused form, of a weight that is marked.
struct Head {
  at::Tensor hidden = leaf(numbers({2, 4, kFeatures}, 0.9)), weight = leaf(numbers({kClasses, kFeatures}, 0.6).div(3)),
             bias = leaf(numbers({kClasses}, 0.5));
  nn::SplitClassesPtr classes = nullptr;  // of the weight, if it is marked

  Head part(const RankGroup& group) const {
    Head own;
    own.weight = leaf(own_part(weight, 0, group));
    own.bias = leaf(own_part(bias, 0, group));
    if (group->size() > 1) own.mark_weight(group);
    return own;
  }
  void mark_weight(const RankGroup& group, bool splits_sequence = false) {
    classes = split_classes(group, kClasses, splits_sequence);
    nn::mark_split_weight(weight, classes);
  }
  at::Tensor fused(const Loss& loss, int64_t chunk) const {
    const char* const reductions[] = {"none", "mean", "sum"};
    return nn::linear_cross_entropy(hidden, weight, loss.target, bias, loss.class_weight, reductions[loss.reduction],
                                    loss.ignore_index, loss.label_smoothing, chunk);
  }
};

TEST(LossParallel, FusedLossesAndGradientsAreThoseOfOneProcess) {
  on_ranks([](const RankGroup& group) {
    for_each_loss({2, 4}, [&](const Loss& loss) {
      const Head whole, own = whole.part(group);
      const at::Tensor expected = whole.fused(loss, 0);
      weighted(expected).backward();
      for (const int64_t chunk : {0, 3}) {
        for (const at::Tensor& parameter : {own.hidden, own.weight, own.bias}) parameter.mutable_grad().reset();
        const at::Tensor found = own.fused(loss, chunk);
        EXPECT_TRUE(near(found, expected));
        weighted(found).backward();
        EXPECT_TRUE(near(own.hidden.grad(), whole.hidden.grad()));
        EXPECT_TRUE(near(own.weight.grad(), own_part(whole.weight.grad(), 0, group)));
        EXPECT_TRUE(near(own.bias.grad(), own_part(whole.bias.grad(), 0, group)));
      }
      // By the values of the weight in another dtype.
      const at::Tensor rounded =
          nn::linear_cross_entropy(own.hidden.to(at::kFloat), own.weight.to(at::kFloat), loss.target, std::nullopt,
                                   std::nullopt, "sum", loss.ignore_index, 0, 0);
      const at::Tensor of_whole =
          nn::linear_cross_entropy(whole.hidden.to(at::kFloat), whole.weight.to(at::kFloat), loss.target, std::nullopt,
                                   std::nullopt, "sum", loss.ignore_index, 0, 0);
      EXPECT_TRUE(near(rounded, of_whole, 1e-5));
    });
  });
}

// Hidden states with the positions of a rank alone.
TEST(LossParallel, FusedLossOfSplitSequences) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const Loss loss{targets({2, 4})};
    const Head whole;
    whole.fused(loss, 0).backward();
    Head own = whole.part(group);
    own.hidden = leaf(own_part(whole.hidden, 1, group));
    own.mark_weight(group, /*splits_sequence=*/true);
    own.fused(loss, 0).backward();
    EXPECT_TRUE(near(own.hidden.grad(), own_part(whole.hidden.grad(), 1, group)));
    EXPECT_TRUE(near(own.weight.grad(), own_part(whole.weight.grad(), 0, group)));
  });
}

// A scope in which means are halved, in the place of one over another axis.
class HalvedMeans final : public nn::SplitSequence {
 public:
  at::Tensor attention(const at::Tensor&, const at::Tensor&, const at::Tensor& value, bool,
                       std::optional<double>) const override {
    return value;
  }
  at::Tensor positions(int64_t length) const override { return at::arange(length); }
  int64_t whole_length(int64_t length) const override { return length; }
  at::Tensor mean(const at::Tensor& sum, const at::Tensor& count) const override { return sum / count / 2; }
  int64_t total(int64_t own) const override { return own; }
};

TEST(LossParallel, MeansOfSplitSequencesAreOverTheLossOfAllClasses) {
  tests::run_ranks(2, [](const RankGroup& group) {
    nn::install_split_operators(at::kCPU);
    const Loss loss{targets({8})};
    const at::Tensor whole = numbers({8, kClasses}, 0.4), scores = split(leaf(own_part(whole, 1, group)) * 1, group);
    const Head head, own = head.part(group);
    const Loss of_head{targets({2, 4})};
    const at::Tensor expected = loss(whole) / 2, fused = head.fused(of_head, 0) / 2;
    const nn::SplitSequence::Scope scope(std::make_shared<HalvedMeans>());
    EXPECT_TRUE(near(loss(scores), expected));
    EXPECT_TRUE(near(own.fused(of_head, 0), fused));
  });
}

struct Traffic {
  std::vector<int64_t> all_gathers, others;  // bytes of a rank's part
};
Traffic traffic_since(const comm::FlightRecord& record, size_t first) {
  Traffic traffic;
  const auto operations = tree::from_json(record.to_json(), "the record").toGenericDict().at("operations").toList();
  for (size_t i = first; i < operations.size(); i++) {
    const auto operation = operations.get(i).toGenericDict();
    const bool gathers = operation.at("operation").toStringRef() == "all_gather";
    (gathers ? traffic.all_gathers : traffic.others).push_back(operation.at("bytes").toInt());
  }
  return traffic;
}
size_t operations_of(const comm::FlightRecord& record) {
  return tree::from_json(record.to_json(), "the record").toGenericDict().at("operations").toList().size();
}

// 12 bytes a row from each other rank, or 16 with label smoothing; in one collective a row block.
TEST(LossParallel, BytesAreThoseOfTheory) {
  for (const int ranks : {2, 3, 4})
    tests::run_ranks(ranks, [](const RankGroup& group) {
      constexpr int64_t kRows = 8;
      for (const bool is_smoothed : {false, true}) {
        const int64_t row = is_smoothed ? 16 : 12;
        Loss loss{targets({kRows})};
        loss.label_smoothing = is_smoothed ? 0.1 : 0;
        const at::Tensor own = leaf(own_part(numbers({kRows, kClasses}, 0.4), 1, group).to(at::kFloat));
        const at::Tensor scores = split(own * 1, group);
        size_t before = operations_of(*group->flight_record());
        loss(scores).backward();
        Traffic traffic = traffic_since(*group->flight_record(), before);
        EXPECT_EQ(traffic.all_gathers, std::vector<int64_t>({row * kRows}));
        EXPECT_TRUE(traffic.others.empty());

        const Head head = Head().part(group);
        const at::Tensor hidden = leaf(head.hidden.view({kRows, kFeatures}).to(at::kFloat));
        const at::Tensor weight = leaf(head.weight.to(at::kFloat));
        const nn::SplitClassesPtr classes = split_classes(group, kClasses, false);
        nn::mark_split_weight(weight, classes);
        for (const char* const reduction : {"mean", "none"}) {
          before = operations_of(*group->flight_record());
          nn::linear_cross_entropy(hidden, weight, loss.target, std::nullopt, std::nullopt, reduction, -100,
                                   loss.label_smoothing, 3)
              .sum()
              .backward();
          traffic = traffic_since(*group->flight_record(), before);
          EXPECT_EQ(traffic.all_gathers, std::vector<int64_t>({row * 3, row * 3, row * 2}));
          EXPECT_EQ(traffic.others, std::vector<int64_t>({kRows * kFeatures * 4}));  // the hidden states' gradient
        }
        ASSERT_LT(operations_of(*group->flight_record()), comm::FlightRecord::kOperations);
      }
    });
}

// The largest tensor of this thread.
struct LargestTensor final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { bytes = std::max(bytes, size); }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t bytes = 0;
};

int64_t largest_tensor(const std::function<void()>& work) {
  const auto memory = std::make_shared<LargestTensor>();
  const c10::DebugInfoGuard watching(c10::DebugInfoKind::PROFILER_STATE, memory);
  work();
  return memory->bytes;
}

// Of the scores a rank never has more than those of its classes, and none as a whole where they are fused with the
// head.
TEST(LossParallel, NoRankHasAllScores) {
  tests::run_ranks(2, [](const RankGroup& group) {
    constexpr int64_t kRows = 64, kMany = 128000, kChunk = 4, kOfRank = kRows * (kMany / 2) * 4;
    const at::Tensor weight = leaf(own_part(numbers({kMany, kFeatures}, 0.3), 0, group).to(at::kFloat));
    const at::Tensor hidden = leaf(numbers({kRows, kFeatures}, 0.4).to(at::kFloat));
    const at::Tensor target = at::arange(kRows, at::kLong).mul(31);
    const auto classes = split_classes(group, kMany, false);
    const int64_t plain = largest_tensor([&] {
      const at::Tensor own = at::linear(parallel_copy(hidden, group), weight);
      at::cross_entropy_loss(class_scores(own, classes, group), target).backward();
    });
    EXPECT_EQ(plain, kOfRank);
    nn::mark_split_weight(weight, classes);
    const int64_t fused = largest_tensor([&] {
      nn::linear_cross_entropy(hidden, weight, target, std::nullopt, std::nullopt, "mean", -100, 0, kChunk).backward();
    });
    EXPECT_EQ(fused, static_cast<int64_t>(weight.nbytes()));  // the gradient of the weight
    EXPECT_LT(fused, kOfRank / 10);
  });
}

// Communicators must end before the process does, whatever tensors are left.
TEST(LossParallel, MarksOwnNoCommunicators) {
  tests::run_ranks(2, [](const RankGroup& group) {
    std::weak_ptr<const nn::SplitClasses> of_scores;
    at::Tensor left;
    {
      const nn::SplitClassesPtr classes = split_classes(group, kClasses, false);
      of_scores = classes;
      left = class_scores(leaf(own_part(numbers({4, kClasses}, 0.4), 1, group)) * 1, classes, group);
      EXPECT_EQ(nn::split_classes_of_scores(left.view({2, 2, -1}), 2), classes);
    }
    EXPECT_FALSE(of_scores.expired());  // the graph needs them
    left = left.detach();
    EXPECT_TRUE(of_scores.expired());
    Head head = Head().part(group);
    head.classes = nullptr;
    expect_error(Status::kInvalidState, "of a split model that is gone", [&] {
      (void)head.fused(Loss{targets({2, 4})}, 0);
    });
  });
}

TEST(LossParallel, ScoresBehindABranchAreRefused) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const at::Tensor own = leaf(own_part(numbers({4, kClasses}, 0.4), 1, group)), scores = split(own * 1, group);
    const auto refuse = [&](const at::Tensor& computed) {
      const char* const words = "and another tensor that requires a gradient; expected the scores alone";
      expect_error(Status::kUnsupported, words, [&] { (void)Loss{targets({computed.size(0)})}(computed); });
      expect_error(Status::kUnsupported, words, [&] { (void)at::softmax(computed, -1); });
    };
    refuse(scores + leaf(numbers({own.size(1)}, 0.2)));
    refuse(scores.to(at::kFloat) / leaf(numbers({1}, 0.2)).abs().to(at::kFloat));
    refuse(at::cat({scores, scores * leaf(numbers({1}, 0.3))}));
    // Others have nothing to do with classes of a rank.
    const at::Tensor pairs = at::cat({scores.sum(1, true), leaf(numbers({4, 1}, 0.3))}, 1);
    EXPECT_EQ(at::softmax(pairs, -1).size(1), 2);
  });
}

TEST(LossParallel, WrongUsesAreRefused) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const at::Tensor own = leaf(own_part(numbers({4, kClasses}, 0.4), 1, group)), scores = split(own * 1, group);
    const auto refuse = [](Status status, const std::string& words, const std::function<void()>& call) {
      expect_error(status, words, call);
    };
    Loss outside{targets({4})};
    outside.target.fill_(kClasses);
    refuse(Status::kInvalidArgument, "a target is 13; expected a class below 13, or -100",
           [&] { (void)outside(scores); });
    refuse(Status::kUnsupported, "expected int64 classes",
           [&] { (void)at::cross_entropy_loss(scores, scores.detach().clone()); });
    refuse(Status::kShapeMismatch, "target has shape [3]", [&] { (void)Loss{targets({3})}(scores); });
    Loss light{targets({4})};
    light.class_weight = numbers({4}, 0.3);
    refuse(Status::kShapeMismatch, "expected one of each of all 13 classes", [&] { (void)light(scores); });
    const char* const mixing = "was called with logits of which each rank has some classes (loss_parallel)";
    refuse(Status::kUnsupported, mixing, [&] { (void)at::softmax(scores, -1); });
    refuse(Status::kUnsupported, mixing, [&] { (void)at::log_softmax(scores.to(at::kFloat), -1); });
    refuse(Status::kUnsupported, mixing, [&] { (void)at::logsumexp(scores.view({2, 2, -1}), -1); });
    refuse(Status::kUnsupported, mixing, [&] { (void)scores.detach().argmax(-1); });
    refuse(Status::kUnsupported, mixing, [&] { (void)at::topk(scores, 2); });
    refuse(Status::kUnsupported, mixing, [&] { (void)scores.max(-1); });
    refuse(Status::kShapeMismatch, "expected " + std::string(group->rank() == 0 ? "7" : "6"), [&] {
      (void)split(numbers({4, 5}, 0.2), group);
    });
    const at::Tensor gradient = torch::autograd::grad({Loss{targets({4})}(scores)}, {own}, {}, true, true)[0];
    refuse(Status::kUnsupported, "has no second derivative", [&] { gradient.sum().backward(); });
    const Head head = Head().part(group);
    Loss of_head{targets({2, 4})};
    of_head.target.fill_(kClasses + 1);
    refuse(Status::kInvalidArgument, "target of row 0 is 14; expected a class below 13",
           [&] { (void)head.fused(of_head, 0); });
    EXPECT_EQ(nn::split_classes_of_weight(at::linspace(0, 1, 3)), nullptr);
    refuse(Status::kInvalidArgument, "expected at least 2, one for each rank that splits them",
           [&] { (void)split_classes(group, 1, false); });
  });
}

// Ranks that have other rows, or are elsewhere, are named on all.
TEST(LossParallel, RanksThatDoNotAgreeAreNamed) {
  const auto lose = [](int64_t rows_of_second, bool is_away) {
    return tests::messages_of(3, std::chrono::seconds(60), [&](comm::Communicator& communicator) {
      const RankGroup group(RankGroup(), &communicator);
      const int64_t rows = group->rank() == 1 ? rows_of_second : 4;
      const at::Tensor scores = split(leaf(own_part(numbers({rows, kClasses}, 0.4), 1, group)) * 1, group);
      if (is_away && group->rank() == 1) return communicator.barrier();
      (void)Loss{targets({rows})}(scores);
    });
  };
  for (const std::string& message : lose(4, true))
    EXPECT_EQ(message.rfind("rank 1 is in wait_for_everyone #0, ranks 0, 2 wait in all_gather #0; ", 0), 0U) << message;
  for (const std::string& message : lose(3, false))
    EXPECT_NE(message.find("rank 0 has float64[4, 3], rank 1 has float64[3, 3]"), std::string::npos) << message;
}

}  // namespace loss_parallel_test
}  // namespace accel::parallel
