// SPDX-License-Identifier: Apache-2.0
// Workload pipeline_decode: tokens a second of a Llama that generates in stages on the ranks, greedily, with as many
// groups of rows on their way as there are ranks. One process of the ranks; bench/run starts them.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <accel.h>

#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "capi/calls/handles.hpp"
#include "comm/communicator.hpp"
#include "nn/module.hpp"
#include "parallel/pipelined_forward.hpp"
#include "tensor/tree.hpp"
#undef CHECK  // LibTorch's logging has one too
#include "measure.h"

namespace {

namespace tree = accel::tree;

constexpr size_t kWarmup = 1;
constexpr int64_t kVocabulary = 256, kPrompt = 16;
// 3.5 M parameters.
constexpr const char *kLlama =
    R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
        "num_attention_heads": 4, "max_position_embeddings": 1024})";

// The parts of a rank, evenly shared out, and the keys and values of its layers, of each group of rows.
class DecodingStage {
 public:
  DecodingStage(accel::nn::ModuleChain chain, int rank, int ranks)
      : chain_(std::move(chain)),
        begin_(chain_.size() * static_cast<size_t>(rank) / static_cast<size_t>(ranks)),
        end_(chain_.size() * static_cast<size_t>(rank + 1) / static_cast<size_t>(ranks)) {}

  // Passed are the numbers of the rows with their tokens, or with what the stage before has computed of these.
  c10::IValue run(const c10::IValue &value) {
    const auto passed = tree::sequence_items(value);
    c10::IValue &cache =
        caches_.try_emplace(passed[0].toTensor().select(0, 0).item<int64_t>(), tree::new_list()).first->second;
    c10::IValue stream = begin_ == 0 ? tree::new_tuple({passed[1], cache}) : stream_of(passed[1].toTensor(), cache);
    for (size_t part = begin_; part < end_; part++) stream = chain_[part].call(stream);
    const bool is_last = end_ == chain_.size();
    const auto outputs = tree::sequence_items(stream);
    const at::Tensor output = outputs[0].toTensor();
    cache = is_last ? outputs[1] : outputs[4];
    return tree::new_list(
        {passed[0], is_last ? output.select(1, output.size(1) - 1).argmax(1, /*keepdim=*/true) : output});
  }
  void forget() { caches_.clear(); }

 private:
  static c10::IValue stream_of(const at::Tensor &hidden, const c10::IValue &cache) {
    const auto layers = tree::sequence_items(cache);
    const int64_t earlier = layers.empty() ? 0 : tree::sequence_items(layers[0])[0].toTensor().size(2);
    return tree::new_list({hidden, earlier, hidden.size(1), cache, tree::new_list()});
  }

  const accel::nn::ModuleChain chain_;
  const size_t begin_, end_;
  std::map<int64_t, c10::IValue> caches_;
};

}  // namespace

int main(int argc, char **argv) {
  enum { ROWS, TOKENS, STEPS, N_OPTIONS };
  option_value options[N_OPTIONS] = {{"--rows", "128"}, {"--tokens", "112"}, {"--steps", "5"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const int64_t rows = measure_integer(&options[ROWS]), tokens = measure_integer(&options[TOKENS]);
  const auto steps = static_cast<size_t>(measure_integer(&options[STEPS]));

  const accel_state_options_t state_options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *const state = measure_state(state_options, "cpu");
  const double base_rss_mb = measure_memory("VmHWM");
  const auto ranks = accel::capi::accelerator_of(state)->state().communicator();
  accel_module_t *model = nullptr;
  accel_tensor_t *prompts = nullptr;
  const int64_t shape[] = {rows, kPrompt};
  CHECK(accel_set_seed(state, 0, 0, 0));
  CHECK(accel_module_from_config(kLlama, &model));
  CHECK(accel_module_train(model, 0));
  CHECK(accel_tensor_randint(0, kVocabulary, shape, 2, &prompts));
  const c10::IValue batch = tree::new_list({at::arange(rows), prompts->tensor});
  DecodingStage stage(model->module->chain(), ranks->rank(), ranks->size());

  std::vector<double> samples;
  double processor = 0, last_tokens = 0, computing = 0, elapsed = 0;
  for (size_t step = 0; step < kWarmup + steps; step++) {
    if (step == kWarmup) processor = measure_processor();
    stage.forget();
    const double begun = measure_now();
    double in_stage = 0;
    const c10::IValue output = accel::parallel::run_forward_pipeline(ranks, at::kCPU, batch, {ranks->size()}, tokens,
                                                                     [&](const c10::IValue &value) {
                                                                       const double entered = measure_now();
                                                                       c10::IValue passed = stage.run(value);
                                                                       in_stage += measure_now() - entered;
                                                                       return passed;
                                                                     });
    if (step >= kWarmup) {
      elapsed += measure_now() - begun;
      computing += in_stage;
    }
    if (step >= kWarmup) samples.push_back(static_cast<double>(rows * tokens) / (measure_now() - begun));
    if (!output.isNone()) last_tokens = tree::sequence_items(output)[1].toTensor().sum().item<double>();
  }
  processor =
      measure_sum(state, measure_processor() - processor) / static_cast<double>(steps * static_cast<size_t>(tokens));
  last_tokens = measure_sum(state, last_tokens);
  computing = measure_sum(state, 100 * computing / elapsed) / ranks->size();

  char params[160], extra[160];
  std::snprintf(params, sizeof params, "{\"rows\": %lld, \"tokens\": %lld, \"procs\": %d}",
                static_cast<long long>(rows), static_cast<long long>(tokens), ranks->size());
  std::snprintf(extra, sizeof extra,
                "\"sum_of_last_tokens\": %.6g, \"processor_us_per_round\": %.5g, \"computing_percent\": %.3g",
                last_tokens, 1e6 * processor, computing);
  const figure line = {"pipeline_decode", params, "tokens/s", 1, samples.data(), samples.size(), base_rss_mb, extra};
  measure_report(state, &line);
  accel_tensor_release(prompts);
  accel_module_release(model);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
