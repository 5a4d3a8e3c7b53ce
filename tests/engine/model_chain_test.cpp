// SPDX-License-Identifier: Apache-2.0
// Models as chains of parts: their forward part by part, their cuts, and ranks that have some of the parts.
#include "parallel/pipeline/cut/model_chain.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/creation_device.hpp"
#include "nn/initial_values.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/chain_parts.hpp"
#include "nn/layers/convolution.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/sequential.hpp"
#include "nn/module_walks.hpp"
#include "parallel/context/context_scope.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/pipeline/cut/kept_parts.hpp"
#include "parallel/pipeline/cut/part_cost.hpp"
#include "parallel/pipeline/cut/stage_ties.hpp"
#include "rank_threads.hpp"
#include "split_model_fixture.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace model_chain_test {

using split_model_tests::gpt2;
using split_model_tests::kVocabulary;
using split_model_tests::llama;
using tests::expect_error;
using tests::run_ranks;

at::Tensor tokens_of(int64_t length = 6) {
  return at::arange(2 * length).mul(7).remainder(kVocabulary).view({2, length});
}

c10::IValue tuple_of(std::vector<c10::IValue> inputs) { return tree::new_tuple(std::move(inputs)); }

c10::IValue call_parts(const nn::ModuleChain& chain, size_t begin, size_t end, c10::IValue value) {
  for (size_t part = begin; part < end; part++) value = chain[part].call(value);
  return value;
}

c10::IValue call_chain(nn::Module& model, std::vector<c10::IValue> inputs) {
  const nn::ModuleChain chain = require_chain(model);
  return call_parts(chain, 0, chain.size(), tuple_of(std::move(inputs)));
}

std::vector<std::string> names_of(const nn::ModuleChain& chain) {
  std::vector<std::string> names;
  for (const nn::ModulePart& part : chain) names.push_back(part.name);
  return names;
}

std::vector<std::string> names_of(const nn::NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

std::shared_ptr<nn::CallbackModule> callback(const nn::Forward& forward) {
  auto module = std::make_shared<nn::CallbackModule>("Callback");
  module->set_forward(forward);
  return module;
}

// The second part returns a map, of which the third one takes both members.
nn::ModulePtr pipeline_of_callbacks() {
  const auto first = callback(
      [](nn::Module&, const nn::Inputs& inputs) -> c10::IValue { return inputs[0].toTensor() + inputs[1].toTensor(); });
  const auto second = callback([](nn::Module&, const nn::Inputs& inputs) -> c10::IValue {
    return tree::new_map({{"twice", inputs[0].toTensor() * 2}, {"input", inputs[0]}});
  });
  const auto third = callback([](nn::Module&, const nn::Inputs& inputs) -> c10::IValue {
    return tree::find_member(inputs[0], "twice")->toTensor() - tree::find_member(inputs[0], "input")->toTensor();
  });
  return std::make_shared<nn::Sequential>(std::vector<nn::ModulePtr>{first, second, third}, "Pipeline");
}

TEST(ModelChain, PartByPartIsTheModel) {
  for (const nn::ModulePtr& model : {gpt2(), llama()})
    EXPECT_TRUE(at::equal(call_chain(*model, {tokens_of()}).toTensor(), model->call(tokens_of())));
  const nn::ModulePtr bare = gpt2()->find("transformer");
  EXPECT_TRUE(at::equal(call_chain(*bare, {tokens_of()}).toTensor(), bare->call(tokens_of())));
  const nn::ModulePtr pipeline = pipeline_of_callbacks();
  const at::Tensor row = at::ones({3});
  EXPECT_TRUE(at::equal(call_chain(*pipeline, {row, row}).toTensor(), pipeline->call({row, row}).toTensor()));
}

TEST(ModelChain, ChainsOfTheProgramHaveLevels) {
  const auto plus = [](double number) {
    return callback([number](nn::Module&, const nn::Inputs& inputs) -> c10::IValue {
      at::Tensor sum = inputs[0].toTensor();
      for (size_t i = 1; i < inputs.size(); i++) sum = sum + inputs[i].toTensor();
      return sum + number;
    });
  };
  const auto chain_of = [](const std::vector<nn::ModulePtr>& parts) {
    return std::make_shared<nn::Sequential>(parts, nn::kProgramChain);
  };
  const auto blocks = chain_of({plus(1), plus(2)});
  const auto base = chain_of({blocks, plus(4)});
  const auto model = chain_of({base, plus(8)});
  base->add_child("tables", std::make_shared<nn::CallbackModule>("Tables"));
  EXPECT_EQ(names_of(require_chain(*model)), (std::vector<std::string>{"0.0.0", "0.0.1", "0.1", "1"}));
  const at::Tensor ones = at::ones({2});
  EXPECT_TRUE(at::equal(call_chain(*model, {ones, ones}).toTensor(), ones + 16));
  EXPECT_TRUE(at::equal(model->call({ones, ones}).toTensor(), ones + 16));
  const auto kept = [&] { return model->find("0.tables"); };
  keep_parts(*model, require_chain(*model), {3});
  EXPECT_NE(kept(), nullptr);
  EXPECT_EQ(names_of(require_chain(*model)), (std::vector<std::string>{"1"}));
}

// A module in no part is on every stage, with a weight that a part of another stage shares.
TEST(ModelChain, ModulesBesideThePartsAreOnEachStage) {
  const auto linear = [] { return std::make_shared<nn::Linear>(2, 2, false); };
  const auto first = linear(), last = linear();
  const auto tables = std::make_shared<nn::CallbackModule>("Tables");
  const at::Tensor weight = at::ones({3}), shared = first->parameter(0);
  tables->add_parameter("weight", weight);
  tables->add_parameter("shared", shared);
  const auto model = std::make_shared<nn::Sequential>(std::vector<nn::ModulePtr>{first, last}, nn::kProgramChain);
  model->add_child("tables", tables);
  const nn::ModuleChain chain = require_chain(*model);
  EXPECT_EQ(modules_of_all_stages(*model, chain), (nn::NamedModules{{"", model.get()}, {"tables", tables.get()}}));
  const std::vector<StageTie> ties = ties_between_stages(*model, chain, {0, 1});
  ASSERT_EQ(ties.size(), 2u);
  using Stages = std::vector<std::pair<int, std::string>>;
  EXPECT_TRUE(ties[0].parameter.is_same(shared));
  EXPECT_EQ(ties[0].stages, (Stages{{0, "0.weight"}, {1, "tables.shared"}}));
  EXPECT_TRUE(ties[1].parameter.is_same(weight));
  EXPECT_EQ(ties[1].stages, (Stages{{0, "tables.weight"}, {1, "tables.weight"}}));
  keep_parts(*model, chain, {1});
  EXPECT_FALSE(shared.is_meta());
  EXPECT_FALSE(weight.is_meta());
}

TEST(ModelChain, HasTheNamesOfTheModel) {
  const nn::ModulePtr model = gpt2();
  const nn::ModuleChain chain = require_chain(*model);
  EXPECT_EQ(names_of(chain), (std::vector<std::string>{"embed", "h.0", "h.1", "head"}));
  EXPECT_EQ(chain[0].modules, (std::vector<std::string>{"transformer.wte", "transformer.wpe", "transformer.drop"}));
  EXPECT_EQ(chain[2].modules, (std::vector<std::string>{"transformer.h.1"}));
  EXPECT_EQ(chain[3].modules, (std::vector<std::string>{"transformer.ln_f", "lm_head"}));
  const nn::ModulePtr other = llama();
  EXPECT_EQ(names_of(require_chain(*other)), (std::vector<std::string>{"embed", "layers.0", "layers.1", "head"}));
  EXPECT_EQ(require_chain(*other)[1].modules, (std::vector<std::string>{"model.layers.0", "model.rotary_emb"}));
}

// Hooks of the modules that a part owns see its calls.
TEST(ModelChain, RunsHooks) {
  const nn::ModulePtr model = gpt2();
  int calls = 0;
  for (const char* path : {"transformer.wte", "transformer.h.1", "transformer.ln_f", "lm_head"})
    model->find(path)->hooks().add_pre_hook([&calls](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
      calls++;
      return std::nullopt;
    });
  call_chain(*model, {tokens_of()});
  EXPECT_EQ(calls, 4);
}

TEST(ModelChain, OthersAreRefused) {
  nn::Linear linear(2, 2, true);
  expect_error(Status::kUnsupported, "a module of kind 'Linear' is no chain of parts", [&] { require_chain(linear); });
}

// A stage keeps the keys of its own layers from one call to the next.
void expect_caches_in_stages(const nn::ModulePtr& model) {
  const at::NoGradGuard no_grad;
  model->train(false);
  const at::Tensor tokens = tokens_of();
  const at::Tensor expected = model->call(tokens);
  EXPECT_TRUE(at::allclose(tree::sequence_items(call_chain(*model, {tokens, tree::new_list()}))[0].toTensor(), expected,
                           1e-6, 1e-6));

  const nn::ModuleChain chain = require_chain(*model);
  c10::IValue first_cache = tree::new_list(), last_cache = tree::new_list();
  for (int64_t position = 0; position < tokens.size(1); position++) {
    const c10::IValue passed = call_parts(chain, 0, 2, tuple_of({tokens.narrow(1, position, 1), first_cache}));
    const auto items = tree::sequence_items(passed);
    first_cache = items[4];
    const c10::IValue output = call_parts(chain, 2, chain.size(),
                                          tree::new_list({items[0], items[1], items[2], last_cache, tree::new_list()}));
    last_cache = tree::sequence_items(output)[1];
    EXPECT_EQ(tree::sequence_items(first_cache).size(), 1u);
    EXPECT_EQ(tree::sequence_items(last_cache).size(), 1u);
    EXPECT_TRUE(at::allclose(tree::sequence_items(output)[0].toTensor(), expected.narrow(1, position, 1), 1e-5, 1e-5));
  }
}

TEST(ModelChain, StagesKeepTheirCaches) {
  expect_caches_in_stages(gpt2());
  expect_caches_in_stages(llama());
}

// Each part is a module whose parameters have the names of the model; runs of them are stages.
TEST(ModelChain, PartsAreModules) {
  for (const nn::ModulePtr& model : {gpt2(), llama()}) {
    const std::vector<nn::ModulePtr> parts = nn::parts_of_chain(model);
    ASSERT_EQ(parts.size(), 4u);
    const auto stage = [&parts](size_t begin) {
      return std::make_shared<nn::Sequential>(std::vector<nn::ModulePtr>{parts[begin], parts[begin + 1]}, "Pipeline");
    };
    const c10::IValue passed = stage(0)->call(nn::Inputs{tokens_of()}), output = stage(2)->call(nn::Inputs{passed});
    EXPECT_TRUE(at::equal(output.toTensor(), model->call(tokens_of())));
    for (const nn::ModulePtr& part : parts)
      for (const auto& [name, parameter] : nn::named_parameters(*part))
        EXPECT_TRUE(parameter.is_same(nn::find_tensor(*model, name))) << name;
  }
  EXPECT_TRUE(nn::parts_of_chain(std::make_shared<nn::Linear>(2, 2, true)).empty());
}

// Lengths change from one call to the next.
TEST(ModelChain, RotaryTablesAreThoseOfTheCall) {
  const nn::ModulePtr model = llama();
  const nn::ModuleChain chain = require_chain(*model);
  for (const int64_t length : {6, 3, 6}) {
    const c10::IValue output = call_parts(chain, 0, chain.size(), tuple_of({tokens_of(length)}));
    EXPECT_TRUE(at::equal(output.toTensor(), model->call(tokens_of(length))));
  }
}

TEST(ModelChain, SplitLayersComputeTheSame) {
  for (const bool sequence_parallel : {false, true})
    for (const auto& make : std::vector<std::function<nn::ModulePtr()>>{[] { return gpt2(); }, [] { return llama(); }})
      tests::on_mesh({1, 1, 2}, [&](const tests::AcceleratorPtr& accelerator) {
        const nn::ModulePtr model = make();
        PrepareModelSettings settings;
        settings.tensor_parallel.plan = std::string("auto");
        settings.tensor_parallel.sequence_parallel = sequence_parallel;
        split_layers(*model, accelerator->state().groups().mesh()->group("tensor"), settings, c10::kCPU);
        const at::Tensor expected = model->call(tokens_of());
        EXPECT_TRUE(at::allclose(call_chain(*model, {tokens_of()}).toTensor(), expected, 1e-6, 1e-6));
      });
}

TEST(ModelChain, SplitSequencesComputeTheSame) {
  for (const auto& make : std::vector<std::function<nn::ModulePtr()>>{[] { return gpt2(); }, [] { return llama(); }})
    tests::on_mesh({1, 1, 1, 2}, [&](const tests::AcceleratorPtr& accelerator) {
      const nn::ModulePtr model = make();
      ContextParallelism split;
      split.group = accelerator->state().groups().mesh()->group("context");
      const at::Tensor tokens = tokens_of(8);
      const ContextScope scope(split, {{tokens, 1}});
      const at::Tensor expected = model->call(tokens);
      EXPECT_TRUE(at::allclose(call_chain(*model, {tokens}).toTensor(), expected, 1e-6, 1e-6));
    });
}

// Without a sample: the products of a row with weights.
TEST(ModelChain, CostsAreThoseOfTheParts) {
  const nn::ModulePtr model = gpt2();
  const nn::ModuleChain chain = require_chain(*model);
  const double width = 24, block = 2 * 12 * width * width, head = 2 * width * kVocabulary;
  EXPECT_EQ(weight_operations(*model, chain), (std::vector<double>{0, block, block, head}));
  const double rows = 2, length = 6, attention = rows * length * length * 2 * width;  // half of the pairs
  const std::vector<double> counted = counted_operations(*model, chain, tuple_of({tokens_of()}));
  EXPECT_EQ(counted, (std::vector<double>{0, rows * length * block + attention, rows * length * block + attention,
                                          rows * length * head}));
  const std::vector<PartSize> sizes = part_sizes(*model, chain);
  EXPECT_EQ(sizes[0].parameters, kVocabulary * 24 + 8 * 24);
  EXPECT_EQ(sizes[3].parameters, 2 * 24 + kVocabulary * 24);  // the tied weight counts in each
  EXPECT_EQ(sizes[3].bytes, sizes[3].parameters * 8);
}

// The positions of the model are fewer than those that are measured with otherwise.
TEST(ModelChain, ModelsOfTokensAreMeasuredWithoutASample) {
  run_ranks(1, [](const std::shared_ptr<comm::Communicator>& ranks) {
    for (const nn::ModulePtr& model : {gpt2(), llama()}) {
      const ChainCut cut = cut_chain(*model, require_chain(*model), {"measured", 2, std::nullopt}, *ranks);
      for (const ChainPart& part : cut.parts) EXPECT_GT(part.cost, 0) << part.name;
    }
  });
}

TEST(ModelChain, ConvolutionsCount) {
  const nn::Conv2dShape shape = {3, 4, 3, 1, 1, 1};
  nn::Sequential model({std::make_shared<nn::Conv2d>(shape, true), std::make_shared<nn::Activation>("relu")});
  EXPECT_EQ(counted_operations(model, require_chain(model), tuple_of({at::ones({2, 3, 5, 5})})),
            (std::vector<double>{2.0 * 2 * 4 * 25 * 27, 0}));
}

// Measuring leaves no trace: neither gradients, nor statistics, nor drawn numbers.
TEST(ModelChain, MeasuringChangesNothing) {
  nn::Sequential model({std::make_shared<nn::Linear>(4, 8, true), std::make_shared<nn::BatchNorm>(8, 1e-5, 0.1),
                        std::make_shared<nn::Dropout>(0.5), std::make_shared<nn::Linear>(8, 2, true)});
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, tensor] : model.state_dict()) before[name] = tensor.clone();
  const at::Tensor random = at::detail::getDefaultCPUGenerator().get_state();
  const std::vector<double> seconds = measured_seconds(model, require_chain(model), tuple_of({at::ones({6, 4})}));
  ASSERT_EQ(seconds.size(), 4u);
  for (const double part : seconds) EXPECT_GT(part, 0);
  EXPECT_TRUE(at::equal(random, at::detail::getDefaultCPUGenerator().get_state()));
  for (const auto& [name, tensor] : model.state_dict()) EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
  for (const at::Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
}

// Gradients of weights are measured apart from those that the former stage waits for; both by the first rank.
TEST(ModelChain, BothHalvesAreMeasured) {
  run_ranks(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    nn::Sequential model({std::make_shared<nn::Linear>(64, 256, true), std::make_shared<nn::Activation>("relu")});
    const nn::ModuleChain chain = require_chain(model);
    const auto seconds = measure_parts(model, chain, tuple_of({at::ones({32, 64})}), *communicator);
    ASSERT_EQ(seconds.size(), 2u);
    for (const PartSeconds& part : seconds) {
      EXPECT_GT(part.forward, 0);
      EXPECT_GT(part.input_backward, 0);
    }
    EXPECT_GT(seconds[0].weight_backward, seconds[1].weight_backward);
    EXPECT_TRUE(measure_parts(model, chain, std::nullopt, *communicator).empty());
    EXPECT_TRUE(measure_parts(model, chain, tuple_of({at::ones({32, 3})}), *communicator).empty());  // of another width
    for (const at::Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
  });
}

nn::ModulePtr empty(const std::function<nn::ModulePtr()>& make) {
  const nn::CreationDevice scope(c10::Device(at::kMeta), /*include_buffers=*/false);
  return make();
}

// `embedding` has more numbers than are drawn at a time.
nn::ModulePtr drawn_model() {
  const auto linear = [](int64_t in, int64_t out) { return std::make_shared<nn::Linear>(in, out, true); };
  return std::make_shared<nn::Sequential>(std::vector<nn::ModulePtr>{
      std::make_shared<nn::Embedding>(2051, 1027), linear(3, 5), linear(5, 7), std::make_shared<nn::Embedding>(3, 5),
      std::make_shared<nn::LayerNorm>(5), linear(33, 129)});
}

TEST(ModelChain, EmptyModelsAreCutAndStayEmpty) {
  const nn::ModulePtr model =
      empty([] { return nn::module_from_config(split_model_tests::llama_config(R"(, "tie_word_embeddings": true)")); });
  const nn::ModuleChain chain = require_chain(*model);
  EXPECT_EQ(counted_operations(*model, chain, tuple_of({tokens_of()})).size(), 4u);
  EXPECT_EQ(measured_seconds(*model, chain, tuple_of({tokens_of()})).size(), 4u);
  for (const at::Tensor& parameter : model->parameters()) EXPECT_TRUE(parameter.is_meta());
  nn::draw_initial_values(*model, at::detail::createCPUGenerator(3));  // they still know their values
  EXPECT_FALSE(nn::lacks_memory(*model));
}

TEST(ModelChain, EmptyPartsGetTheValuesOfTheWholeModel) {
  const nn::ModulePtr whole = empty(drawn_model);
  nn::draw_initial_values(*whole, at::detail::createCPUGenerator(7));
  std::map<std::string, at::Tensor> expected;
  for (const auto& [name, tensor] : whole->state_dict()) expected[name] = tensor;
  for (const std::set<size_t>& parts : std::vector<std::set<size_t>>{{0}, {1, 5}, {2, 3}, {4}, {5}}) {
    const nn::ModulePtr model = empty(drawn_model);
    const nn::NamedTensors all = nn::named_parameters(*model);
    keep_parts(*model, require_chain(*model), parts);
    const at::Generator generator = at::detail::createCPUGenerator(7);
    nn::draw_initial_values(*model, generator, all);
    EXPECT_FALSE(model->state_dict().empty());
    for (const auto& [name, tensor] : model->state_dict()) EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
    for (const auto& [name, tensor] : all)
      EXPECT_EQ(tensor.is_meta(), parts.count(static_cast<size_t>(name[0] - '0')) == 0) << name;
  }
}

TEST(ModelChain, StagesHaveTheirPartsAlone) {
  const at::Tensor expected = gpt2()->call(tokens_of());
  const nn::ModulePtr first = gpt2(), last = gpt2();
  const std::vector<std::string> whole = names_of(nn::named_parameters(*last));
  const nn::ModuleChain first_chain = require_chain(*first), last_chain = require_chain(*last);
  const at::Tensor released = last->find("transformer.h.0")->find("attn.c_attn")->parameter(0);
  const nn::ModulePtr block = last->find("transformer.h.0");
  keep_parts(*first, first_chain, {0, 1});
  keep_parts(*last, last_chain, {2, 3});

  std::vector<std::string> names = names_of(nn::named_parameters(*first));
  for (const std::string& name : names_of(nn::named_parameters(*last)))
    if (name != "lm_head.weight") names.push_back(name);  // the weight that the first stage has too
  EXPECT_EQ(names, whole);
  EXPECT_TRUE(released.is_meta());
  EXPECT_TRUE(block->find("attn.c_attn")->parameter(0).is_same(released));
  EXPECT_EQ(released.sizes().vec(), (std::vector<int64_t>{24, 72}));
  EXPECT_FALSE(last->find("lm_head")->parameter(0).is_meta());
  expect_error(Status::kInvalidState,
               "'transformer.h.0' is in a stage of the pipeline that another rank has; call the prepared model", [&] {
                 block->call(at::ones({1, 2, 24}, at::kDouble));
               });
  expect_error(Status::kNotFound, "has no child '0'", [&] { last->find("transformer.h.0"); });

  const c10::IValue passed = call_parts(first_chain, 0, 2, tuple_of({tokens_of()}));
  EXPECT_TRUE(at::equal(call_parts(last_chain, 2, 4, passed).toTensor(), expected));
}

TEST(ModelChain, KnowsTheTiesBetweenStages) {
  const nn::ModulePtr model = gpt2();
  const nn::ModuleChain chain = require_chain(*model);
  const std::vector<StageTie> ties = ties_between_stages(*model, chain, {0, 1, 3});
  ASSERT_EQ(ties.size(), 1u);
  EXPECT_EQ(ties[0].name, "transformer.wte.weight");
  EXPECT_TRUE(ties[0].parameter.is_same(nn::find_tensor(*model, "lm_head.weight")));
  EXPECT_EQ(ties[0].stages,
            (std::vector<std::pair<int, std::string>>{{0, "transformer.wte.weight"}, {2, "lm_head.weight"}}));
  EXPECT_TRUE(ties_between_stages(*model, chain, {0}).empty());
  const nn::ModulePtr untied = llama();
  EXPECT_TRUE(ties_between_stages(*untied, require_chain(*untied), {0, 2}).empty());
}

TEST(ModelChain, IsCutAlikeOnAllRanks) {
  for (const std::string split : {"parameters", "flops", "measured", "1,3", "h.1"})
    run_ranks(2, [&split](const std::shared_ptr<comm::Communicator>& ranks) {
      const nn::ModulePtr model = gpt2();
      ChainSplit request{split, 2, std::nullopt};
      if (ranks->rank() == 0) request.sample = tuple_of({tokens_of()});  // the others have none
      const ChainCut cut = cut_chain(*model, require_chain(*model), request, *ranks);
      EXPECT_EQ(cut.begins.size(), 2u);
      EXPECT_EQ(cut.cost_kind, is_cost_kind(split) ? split : "flops");
      if (!is_cost_kind(split)) {
        EXPECT_EQ(cut.begins, (StageBegins{0, split == "h.1" ? size_t{2} : size_t{1}}));
      }
      EXPECT_GE(cut.imbalance(), 1);
      const at::Tensor begin = at::ones({}, at::kLong).mul(static_cast<int64_t>(cut.begins[1]));
      const at::Tensor sum = begin.clone();
      ranks->all_reduce(sum, comm::ReduceOp::kSum);
      EXPECT_EQ(sum.item<int64_t>(), 2 * begin.item<int64_t>());
    });
}

std::vector<std::string> refusals(
    const std::function<ChainSplit(int rank)>& split_of,
    const std::function<nn::ModulePtr()>& make = [] { return gpt2(); }) {
  return tests::messages_of(2, std::chrono::seconds(30), [&](comm::Communicator& ranks) {
    const nn::ModulePtr model = make();
    cut_chain(*model, require_chain(*model), split_of(ranks.rank()), ranks);
  });
}

TEST(ModelChain, RefusesTheSameOnAllRanks) {
  for (const std::string& message : refusals(
           [](int) {
             return ChainSplit{"measured", 2, std::nullopt};
           },
           pipeline_of_callbacks))
    EXPECT_NE(message.find("a module of kind 'Pipeline' takes no token ids; expected sample inputs"), std::string::npos)
        << message;
  for (const std::string& message : refusals([](int) { return ChainSplit{"parameters", 5, std::nullopt}; }))
    EXPECT_NE(message.find("the model has 4 parts, which cannot be 5 stages"), std::string::npos) << message;
  for (const std::string& message : refusals([](int rank) {
         return ChainSplit{rank == 0 ? "flops" : "2,2", 2, std::nullopt};
       }))
    EXPECT_NE(message.find("rank 1 of the pipeline has the split \"2,2\" of embed, h.0, h.1, head into 2 stages, rank "
                           "0 the split \"flops\""),
              std::string::npos)
        << message;
  for (const std::string& message : refusals([](int) { return ChainSplit{"2,2", 2, std::nullopt, {1 << 20, 9000}}; }))
    EXPECT_NE(message.find("stage 1 of 2, 'h.1' to 'head', needs "), std::string::npos) << message;
  for (const std::string& message : refusals([](int rank) {
         return ChainSplit{"flops", 2, std::nullopt, std::vector<int64_t>(2, rank == 0 ? 1 << 20 : 1 << 21)};
       }))
    EXPECT_NE(message.find("into 2 stages of at most 2097152, 2097152 bytes, rank 0 the split"), std::string::npos)
        << message;
  const auto fails = [](nn::Module&, const nn::Inputs&) -> c10::IValue { fail(Status::kIo, "the disk is full"); };
  for (const std::string& message : refusals(
           [](int) {
             return ChainSplit{"flops", 1, tuple_of({at::ones({1})})};
           },
           [&fails] { return std::make_shared<nn::Sequential>(std::vector<nn::ModulePtr>{callback(fails)}); }))
    EXPECT_NE(message.find("the disk is full"), std::string::npos) << message;
}

TEST(ModelChain, IsShownAsATable) {
  ChainCut cut{
      {{"embed", 0, 192 << 20, 10}, {"h.0", 30, 1 << 18, 20}, {"h.1", 30, 1 << 18, 20}, {"head", 60, 3 << 19, 30}},
      "flops",
      {0, 3}};
  EXPECT_EQ(describe_stages(cut, {2, 4}),
            "stage  rank  parts         parameters  memory     flops  share\n"
            "0      0     embed to h.1  50          192.5 MiB  60     50.0 %\n"
            "1      1     head          30          1.5 MiB    60     50.0 %\n");
  EXPECT_EQ(cut.imbalance(), 1);
  cut.begins = {0, 1, 2, 3};
  const PipelineShape shape{2, 4, 2, StageOrder::kV};
  EXPECT_EQ(parts_of_rank(cut, shape, 0), (std::set<size_t>{0, 3}));
  EXPECT_EQ(parts_of_rank(cut, shape, 1), (std::set<size_t>{1, 2}));
  EXPECT_EQ(cut.imbalance(), 2);
}

// A chain of random trees, some of which are in it twice, or share a weight.
class RandomChain {
 public:
  explicit RandomChain(unsigned seed) : random_(seed) {}

  nn::ModulePtr make() {
    std::vector<nn::ModulePtr> parts;
    const int count = draw(1, 8);
    for (int part = 0; part < count; part++)
      parts.push_back(!parts.empty() && draw(0, 5) == 0 ? parts[static_cast<size_t>(draw(0, part - 1))] : tree(2));
    return std::make_shared<nn::Sequential>(parts, "Pipeline");
  }
  int draw(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<unsigned>(most - least + 1));
  }

 private:
  static constexpr int64_t kWidth = 3;

  nn::ModulePtr tree(int depth) {
    if (depth == 0 || draw(0, 2) == 0) return leaf();
    std::vector<nn::ModulePtr> children;
    for (int child = draw(1, 3); child > 0; child--) children.push_back(tree(depth - 1));
    return std::make_shared<nn::Sequential>(children);
  }
  nn::ModulePtr leaf() {
    if (draw(0, 4) == 0) return std::make_shared<nn::Activation>("tanh");
    const int seed = draw(1, 9);
    at::Tensor weight = at::linspace(-seed, seed + 1, kWidth * kWidth, at::kDouble).sin().view({kWidth, kWidth});
    if (!weights_.empty() && draw(0, 3) == 0) weight = weights_[static_cast<size_t>(draw(0, 8)) % weights_.size()];
    weights_.push_back(weight);
    return std::make_shared<nn::Linear>(weight, at::Tensor());
  }

  std::mt19937 random_;
  std::vector<at::Tensor> weights_;
};

TEST(ModelChain, RandomTreesAreCutIntoStagesThatAreTheModel) {
  for (unsigned seed = 0; seed < 100; seed++) {
    SCOPED_TRACE(seed);
    const nn::ModulePtr whole = RandomChain(seed).make();
    const nn::ModuleChain whole_chain = require_chain(*whole);
    std::mt19937 random(seed);
    const auto stages = static_cast<int>(1 + random() % whole_chain.size());
    StageBegins begins{0};
    for (size_t part = 1; part < whole_chain.size() && begins.size() < static_cast<size_t>(stages); part++)
      if (random() % 2 == 0 || whole_chain.size() - part <= static_cast<size_t>(stages) - begins.size())
        begins.push_back(part);

    const at::Tensor input = at::linspace(-1, 1, 6, at::kDouble).view({2, 3});
    c10::IValue value = tuple_of({input});
    std::map<std::string, std::set<int>> found;  // the stages of each name
    for (size_t stage = 0; stage < begins.size(); stage++) {
      const nn::ModulePtr model = RandomChain(seed).make();
      const nn::ModuleChain chain = require_chain(*model);
      const size_t end = stage + 1 < begins.size() ? begins[stage + 1] : chain.size();
      std::set<size_t> parts;
      for (size_t part = begins[stage]; part < end; part++) parts.insert(part);
      const nn::NamedTensors all = nn::named_parameters(*model);
      keep_parts(*model, chain, parts);
      value = call_parts(chain, begins[stage], end, value);
      for (const auto& [name, tensor] : model->state_dict()) {
        EXPECT_FALSE(tensor.is_meta()) << name;
        found[name].insert(static_cast<int>(stage));
      }
      std::set<const at::TensorImpl*> own;
      for (const at::Tensor& parameter : model->parameters()) own.insert(parameter.unsafeGetTensorImpl());
      for (const auto& [name, tensor] : all) EXPECT_EQ(tensor.is_meta(), own.count(tensor.unsafeGetTensorImpl()) == 0);
    }
    EXPECT_TRUE(at::equal(value.toTensor(), whole->call(input)));
    const nn::NamedTensors state = whole->state_dict();
    EXPECT_EQ(found.size(), state.size());
    for (const auto& [name, stages_of_name] : found) EXPECT_EQ(stages_of_name.size(), 1u) << name;
    for (const StageTie& tie : ties_between_stages(*whole, whole_chain, begins)) {
      EXPECT_EQ(tie.stages.front().second, tie.name);
      for (const auto& [stage, name] : tie.stages) {
        EXPECT_EQ(found.at(name), (std::set<int>{stage})) << name;
        EXPECT_TRUE(nn::find_tensor(*whole, name).is_same(tie.parameter));
      }
    }
  }
}

}  // namespace model_chain_test
}  // namespace accel::parallel
