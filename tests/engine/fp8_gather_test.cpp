// SPDX-License-Identifier: Apache-2.0
// Sharded models that gather weights in 8 bits compute with the rounded values of whole weights, and exchange half the
// bytes; what is trained, shown and saved is not rounded.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/record/flight_record.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "fsdp_fixture.hpp"
#include "kernels/fp8/fp8_values.hpp"
#include "optim/rules/rules.hpp"
#include "parallel/fp8_gather.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace fp8_gather_test {

using kernels::Fp8Granularity;
using kernels::Fp8Matrix;

constexpr int64_t kRows = 37, kInner = 48;  // no number of ranks divides the rows
constexpr int kBlocks = 3;

using Seen = std::vector<std::pair<std::string, at::Tensor>>;  // weights, as forwards have seen them

nn::ModulePtr block(int number, const std::shared_ptr<Seen>& seen) {
  auto module = std::make_shared<nn::CallbackModule>("Block");
  const auto values = [&](int64_t rows, int64_t columns) {
    return at::linspace(-1, 1, rows * columns).mul(13.7 + number).sin().mul(0.3).view({rows, columns});
  };
  module->add_parameter("up", values(kRows, kInner), true);
  module->add_parameter("down", values(kInner, kRows), true);
  module->add_parameter("bias", at::linspace(-0.1, 0.1, kInner), true);
  const std::string name = "block" + std::to_string(number);
  module->set_forward([seen, name](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    for (int i = 0; i < 2; i++)
      seen->emplace_back(name + (i == 0 ? ".up" : ".down"), self.parameter(i).detach().clone());
    const at::Tensor x = inputs[0].toTensor().to(self.parameter(0).scalar_type());
    return x + at::linear(at::tanh(at::linear(x, self.parameter(0))), self.parameter(1), self.parameter(2));
  });
  return module;
}

std::shared_ptr<nn::CallbackModule> make_model(const std::shared_ptr<Seen>& seen) {
  auto model = std::make_shared<nn::CallbackModule>("Net");
  for (int i = 0; i < kBlocks; i++) model->add_child("block" + std::to_string(i), block(i, seen));
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor x = inputs[0].toTensor();
    for (const auto& [name, child] : self.children()) x = child->call(x);
    return x.to(at::kFloat);
  });
  return model;
}

at::Tensor inputs_of(int rank, int step) {
  return at::linspace(-1, 1, 2 * kInner).mul(3.1 + rank + 1.3 * step).cos().view({2, kInner});
}

std::shared_ptr<Fp8Gather> gather_of(Fp8Granularity granularity) {
  auto gather = std::make_shared<Fp8Gather>();
  gather->granularity = granularity;
  gather->covers = [](const at::Tensor& weight) { return weight.dim() == 2; };
  return gather;
}

FsdpSettings in_bfloat16() {
  FsdpSettings settings = fsdp_fixture::by_blocks();
  settings.param_dtype = std::string("bfloat16");
  return settings;
}

// Returns the values of a weight that a forward has to see.
at::Tensor rounded(const at::Tensor& weight, const Fp8Gather& gather) {
  const Fp8Matrix matrix =
      kernels::quantize(weight.detach().contiguous(), gather.format, gather.granularity, gather.margin, nullptr);
  return kernels::dequantize(matrix, at::kBFloat16);
}

struct Rank {
  std::shared_ptr<comm::Communicator> all;
  std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  std::shared_ptr<nn::CallbackModule> inner = make_model(seen);
  ParallelModelPtr model = {};

  void prepare(const FsdpSettings& fsdp, const std::shared_ptr<Fp8Gather>& gather) {
    PrepareModelSettings settings;
    settings.fsdp = fsdp;
    model =
        parallelize(inner, fsdp_fixture::model_ranks(all, fsdp.sharding_strategy), settings, at::kCPU, nullptr, gather);
  }
  at::Tensor loss(int step) const { return model->nn::Module::call(inputs_of(all->rank(), step)).square().mean(); }
  void backward(const at::Tensor& loss) const {
    if (auto* const exchange = model->exchange()) exchange->expect_backward();
    torch::autograd::backward({loss}, {});
    model->finish_step();
  }
};

void expect_seen(const Seen& seen, const std::map<std::string, at::Tensor>& expected, size_t times) {
  ASSERT_EQ(seen.size(), times * expected.size());
  for (const auto& [name, values] : seen) EXPECT_TRUE(at::equal(values, expected.at(name))) << name;
}

// `whole` are unrounded.
std::map<std::string, at::Tensor> rounded_weights(const std::map<std::string, at::Tensor>& whole,
                                                  const Fp8Gather& gather) {
  std::map<std::string, at::Tensor> expected;
  for (const auto& [name, weight] : whole)
    if (weight.dim() == 2) expected[name] = rounded(weight, gather);
  return expected;
}

void on_ranks(int ranks, const std::function<void(Rank& rank)>& run) {
  tests::run_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& all) {
    Rank rank{all};
    run(rank);
  });
}

constexpr Fp8Granularity kGranularities[] = {Fp8Granularity::kTensor, Fp8Granularity::kRow, Fp8Granularity::kBlock};

TEST(Fp8Gather, GivesTheRoundedValuesOfWholeWeights) {
  for (const Fp8Granularity granularity : kGranularities)
    for (const int ranks : {2, 3, 4})
      for (const auto strategy :
           {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp, ShardingStrategy::kHybridShard}) {
        SCOPED_TRACE(text("granularity ", static_cast<int>(granularity), ", ", ranks, " ranks, strategy ",
                          static_cast<int>(strategy)));
        on_ranks(ranks, [&](Rank& rank) {
          const auto gather = gather_of(granularity);
          gather->margin = ranks == 3 ? 1 : 0;
          if (ranks == 4) gather->format = at::kFloat8_e5m2;
          FsdpSettings settings = in_bfloat16();
          settings.sharding_strategy = strategy;
          settings.forward_prefetch = ranks == 3;
          rank.prepare(settings, gather);
          const auto optimizer =
              optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.02}});
          optimizer->add_group(rank.inner->parameters(), std::nullopt, std::nullopt);
          for (int step = 0; step < 3; step++) {
            const auto expected = rounded_weights(fsdp_fixture::whole_parameters(*rank.model), *gather);
            rank.seen->clear();
            rank.backward(rank.loss(step));
            expect_seen(*rank.seen, expected, 1);
            optimizer->step();
            optimizer->zero_grad(true);
          }
        });
      }
}

TEST(Fp8Gather, HoldsInForwardsThatAreComputedAgain) {
  for (const Fp8Granularity granularity : kGranularities)
    for (const int64_t kept_by : {0, 2}) {
      on_ranks(4, [&](Rank& rank) {
        const auto gather = gather_of(granularity);
        FsdpSettings settings = in_bfloat16();
        settings.activation_checkpointing = true;
        settings.reshard_group_size = kept_by;
        rank.prepare(settings, gather);
        const auto expected = rounded_weights(fsdp_fixture::whole_parameters(*rank.model), *gather);
        rank.backward(rank.loss(0));
        expect_seen(*rank.seen, expected, 2);
      });
    }
}

TEST(Fp8Gather, LeavesEvaluationUnrounded) {
  for (const bool in_evaluation : {false, true})
    on_ranks(2, [&](Rank& rank) {
      const auto gather = gather_of(Fp8Granularity::kTensor);
      gather->in_evaluation = in_evaluation;
      rank.prepare(in_bfloat16(), gather);
      const auto whole = fsdp_fixture::whole_parameters(*rank.model);
      const auto in_eight_bits = rounded_weights(whole, *gather);
      std::map<std::string, at::Tensor> in_sixteen;
      for (const auto& [name, weight] : in_eight_bits) in_sixteen[name] = whole.at(name).to(at::kBFloat16);
      for (const bool trains : {true, false, true}) {
        rank.inner->train(trains);
        rank.seen->clear();
        const at::Tensor loss = rank.loss(0);
        expect_seen(*rank.seen, trains || in_evaluation ? in_eight_bits : in_sixteen, 1);
        if (trains) rank.backward(loss);
      }
      for (const auto& [name, child] : rank.inner->children()) child->train(false);  // as below a stage of a pipeline
      rank.seen->clear();
      rank.loss(0);
      expect_seen(*rank.seen, in_evaluation ? in_eight_bits : in_sixteen, 1);
    });
}

// A change between two forwards, of a weight on one rank, is seen by all.
TEST(Fp8Gather, FindsScalesAnew) {
  on_ranks(3, [](Rank& rank) {
    const auto gather = gather_of(Fp8Granularity::kTensor);
    rank.prepare(in_bfloat16(), gather);
    rank.backward(rank.loss(0));
    const at::Tensor weight = nn::find_tensor(*rank.inner, "block1.up");
    if (rank.all->rank() == 1) {
      const at::NoGradGuard no_grad;
      weight.narrow(0, 0, 1).fill_(100);
    }
    const auto expected = rounded_weights(fsdp_fixture::whole_parameters(*rank.model), *gather);
    rank.seen->clear();
    rank.loss(0);
    expect_seen(*rank.seen, expected, 1);
  });
}

TEST(Fp8Gather, TakesWeightsWithoutAScale) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float value : {0.0f, kInfinity, kNan})
    for (const Fp8Granularity granularity : kGranularities)
      on_ranks(2, [&](Rank& rank) {
        const auto gather = gather_of(granularity);
        rank.prepare(in_bfloat16(), gather);
        {
          const at::NoGradGuard no_grad;
          const at::Tensor weight = nn::find_tensor(*rank.inner, "block0.down");
          if (value == 0) weight.zero_();
          if (value != 0 && rank.all->rank() == 1) weight.narrow(0, 3, 1).fill_(value);
        }
        const auto expected = rounded_weights(fsdp_fixture::whole_parameters(*rank.model), *gather);
        rank.loss(0);
        for (const auto& [name, values] : *rank.seen)
          EXPECT_TRUE(values.allclose(expected.at(name), 0, 0, /*equal_nan=*/true)) << name;
      });
}

TEST(Fp8Gather, ShowsAndTrainsUnroundedWeights) {
  on_ranks(2, [](Rank& rank) {
    rank.prepare(in_bfloat16(), gather_of(Fp8Granularity::kTensor));
    const at::Tensor weight = nn::find_tensor(*rank.inner, "block0.up");
    const at::Tensor expected = nn::find_tensor(*make_model(rank.seen), "block0.up");
    rank.backward(rank.loss(0));
    EXPECT_EQ(weight.scalar_type(), at::kFloat);
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    rank.model->parts()->gather_parameters({weight});
    EXPECT_TRUE(at::equal(weight, expected));
    rank.model->parts()->release_parameters({weight}, std::nullopt);
    const at::Tensor whole = at::empty_like(expected);
    rank.model->parts()->gather_into({weight}, {whole});
    EXPECT_TRUE(at::equal(whole, expected));
  });
}

TEST(Fp8Gather, GivesWhatItGathers) {
  for (const Fp8Granularity granularity : kGranularities)
    on_ranks(2, [&](Rank& rank) {
      std::map<const at::TensorImpl*, Fp8Matrix> given;
      size_t times = 0;
      const auto gather = gather_of(granularity);
      gather->given = [&](const at::Tensor& weight, const Fp8Matrix& matrix) {
        times += matrix.values.defined() ? 1 : 0;
        if (!matrix.values.defined()) {
          EXPECT_EQ(given.erase(weight.unsafeGetTensorImpl()), 1);
          return;
        }
        EXPECT_TRUE(given.emplace(weight.unsafeGetTensorImpl(), matrix).second);
        EXPECT_EQ(matrix.values.scalar_type(), at::kFloat8_e4m3fn);
        EXPECT_EQ(matrix.values.sizes(), weight.sizes());
        EXPECT_TRUE(at::equal(kernels::dequantize(matrix, at::kBFloat16), weight.detach()));
      };
      rank.prepare(in_bfloat16(), gather);
      rank.backward(rank.loss(0));
      EXPECT_TRUE(given.empty());
      EXPECT_EQ(times, 2 * 2 * kBlocks);
    });
}

// Forwards and backwards of a pipeline, which one rank ends before the other.
TEST(Fp8Gather, HasOneScaleInAllMicroBatches) {
  for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp})
    on_ranks(2, [&](Rank& rank) {
      const auto gather = gather_of(Fp8Granularity::kTensor);
      FsdpSettings settings = in_bfloat16();
      settings.sharding_strategy = strategy;
      rank.prepare(settings, gather);
      const auto expected = rounded_weights(fsdp_fixture::whole_parameters(*rank.model), *gather);
      GradientExchange& exchange = *rank.model->exchange();
      for (int step = 0; step < 2; step++) {
        rank.seen->clear();
        exchange.begin_micro_batches(MicroBatches::kTrained);
        const bool fails = step == 0 && strategy == ShardingStrategy::kFullShard && rank.all->rank() == 1;
        const size_t forwards = fails ? 1 : 3;
        try {
          std::vector<at::Tensor> losses;
          for (size_t i = 0; i < forwards; i++) losses.push_back(rank.loss(static_cast<int>(i)));
          if (!fails) torch::autograd::backward(losses, {});
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), Status::kCollectiveMismatch) << error.what();
        }
        exchange.end_gathers();
        exchange.end_micro_batches(/*have_failed=*/step == 0);
        for (const auto& [name, values] : *rank.seen) EXPECT_TRUE(at::equal(values, expected.at(name))) << name;
        if (step == 1) {
          EXPECT_EQ(rank.seen->size(), 3 * expected.size());
        }
      }
    });
}

struct Traffic {
  double gathered = 0;  // bytes that a rank receives
  size_t gathers = 0, reductions = 0;
};

// Names of what a rank exchanged, those of one kind.
size_t count_of(const Rank& rank, const std::string& wanted) {
  const auto record = tree::from_json(rank.all->flight_record()->to_json(), "the record");
  size_t count = 0;
  for (const c10::IValue& operation : record.toGenericDict().at("operations").toListRef())
    count += operation.toGenericDict().at("operation").toStringRef() == wanted ? 1 : 0;
  return count;
}

// Weights do not change between the micro-batches of an update.
TEST(Fp8Gather, FindsScalesOnceAnUpdate) {
  on_ranks(2, [](Rank& rank) {
    rank.prepare(in_bfloat16(), gather_of(Fp8Granularity::kTensor));
    const auto reductions_of = [&](bool exchanges) {
      const size_t before = count_of(rank, "all_reduce");
      rank.model->set_gradient_sync(exchanges);
      torch::autograd::backward({rank.loss(0)}, {});
      if (exchanges) rank.model->finish_step();
      return count_of(rank, "all_reduce") - before;
    };
    for (int update = 0; update < 2; update++) {
      EXPECT_EQ(reductions_of(false), 1u) << update;
      EXPECT_EQ(reductions_of(false), 0u) << update;
      {
        const at::NoGradGuard no_grad;  // an evaluation inside of the window
        const size_t before = count_of(rank, "all_reduce");
        rank.loss(0);
        EXPECT_EQ(count_of(rank, "all_reduce"), before) << update;
      }
      EXPECT_EQ(reductions_of(true), 0u) << update;
    }
    // A backward that exchanges although its forward did not intend to ends the window, too.
    EXPECT_EQ(reductions_of(false), 1u);
    const at::Tensor loss = rank.loss(0);
    rank.model->set_gradient_sync(true);
    torch::autograd::backward({loss}, {});
    rank.model->finish_step();
    EXPECT_EQ(reductions_of(true), 1u);
  });
}

Traffic traffic_of_step(const std::shared_ptr<Fp8Gather>& gather) {
  Traffic traffic;
  on_ranks(2, [&](Rank& rank) {
    rank.prepare(in_bfloat16(), gather);
    rank.backward(rank.loss(0));
    const auto operations = [&] {
      return tree::from_json(rank.all->flight_record()->to_json(), "the record")
          .toGenericDict()
          .at("operations")
          .toList();
    };
    const size_t before = operations().size();
    rank.backward(rank.loss(1));
    if (rank.all->rank() != 0) return;
    const c10::List<c10::IValue> all = operations();
    for (size_t i = before; i < all.size(); i++) {
      const auto operation = all.get(i).toGenericDict();
      const std::string name = operation.at("operation").toStringRef();
      if (name == "all_reduce") traffic.reductions++;
      if (name != "all_gather") continue;
      traffic.gathers++;
      traffic.gathered += static_cast<double>(operation.at("bytes").toInt());
    }
  });
  return traffic;
}

TEST(Fp8Gather, ExchangesHalfTheBytes) {
  const Traffic expected = traffic_of_step(nullptr);
  constexpr double kBiases = 2.0 * kBlocks * kInner;  // of both gathers, in bytes of one rank of two
  for (const Fp8Granularity granularity : kGranularities) {
    SCOPED_TRACE(static_cast<int>(granularity));
    const Traffic traffic = traffic_of_step(gather_of(granularity));
    constexpr double kRowsOfARank = (kRows + 1) / 2.0 + kInner / 2.0;
    double scales = 0;
    if (granularity == Fp8Granularity::kRow) scales = 4 * kRowsOfARank;
    if (granularity == Fp8Granularity::kBlock) scales = (kRows + 1) / 2.0 * 2 + kInner / 2.0 * 2;
    EXPECT_EQ(traffic.gathered, (expected.gathered - kBiases) / 2 + kBiases + 2 * kBlocks * scales);
    EXPECT_EQ(traffic.reductions, expected.reductions + (granularity == Fp8Granularity::kTensor ? 1 : 0));
  }
}

}  // namespace fp8_gather_test
}  // namespace accel::parallel
