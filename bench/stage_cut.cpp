// SPDX-License-Identifier: Apache-2.0
// Workload stage_cut: how even the stages of a GPT with a large vocabulary are. The time of the slowest stage over the
// mean, for cuts by measured times and by parameters, as a second measurement finds it. The model has no memory but for
// the part that is measured.
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <accel.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "capi/calls/handles.hpp"
#include "comm/communicator.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/creation_device.hpp"
#include "parallel/pipeline/cut/model_chain.hpp"
#include "parallel/pipeline/cut/part_cost.hpp"
#include "tensor/tree.hpp"
#undef CHECK  // LibTorch's logging has one too
#include "measure.h"

namespace {

namespace parallel = accel::parallel;

constexpr int64_t kVocabulary = 50257, kLength = 64;

accel::nn::ModulePtr empty_gpt(int64_t width, int64_t layers) {
  const accel::nn::CreationDevice scope(c10::Device(at::kMeta), /*include_buffers=*/false);
  return accel::nn::module_from_config(accel::text(R"({"model_type": "gpt2", "n_head": 8, "n_positions": )", kLength,
                                                   R"(, "vocab_size": )", kVocabulary, R"(, "n_embd": )", width,
                                                   R"(, "n_layer": )", layers, "}"));
}

// The slowest stage over the mean of the stages.
double unevenness(std::vector<parallel::ChainPart> parts, const parallel::StageBegins &begins,
                  const std::vector<double> &seconds) {
  for (size_t part = 0; part < parts.size(); part++) parts[part].cost = seconds[part];
  const std::vector<double> costs = parallel::stage_costs(parts, begins);
  const double sum = std::accumulate(costs.begin(), costs.end(), 0.0);
  return *std::max_element(costs.begin(), costs.end()) * static_cast<double>(costs.size()) / sum;
}

}  // namespace

int main(int argc, char **argv) {
  enum { WIDTH, LAYERS, N_OPTIONS };
  option_value options[N_OPTIONS] = {{"--width", "768"}, {"--layers", "36"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const int64_t width = measure_integer(&options[WIDTH]), layers = measure_integer(&options[LAYERS]);

  const accel_state_options_t state_options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *const state = measure_state(state_options, "cpu");
  accel::comm::Communicator &alone = *accel::capi::accelerator_of(state)->state().communicator();
  const accel::nn::ModulePtr model = empty_gpt(width, layers);
  const accel::nn::ModuleChain chain = parallel::require_chain(*model);
  const c10::IValue sample = accel::tree::new_tuple({at::zeros({1, kLength}, at::kLong)});
  for (const int stages : {2, 4})
    for (const char *const split : {"measured", "parameters"}) {
      const parallel::ChainCut cut = parallel::cut_chain(*model, chain, {split, stages, sample}, alone);
      double ratio = unevenness(cut.parts, cut.begins, parallel::measured_seconds(*model, chain, sample));
      char params[160];
      std::snprintf(params, sizeof params, "{\"split\": \"%s\", \"stages\": %d, \"width\": %lld, \"layers\": %lld}",
                    split, stages, static_cast<long long>(width), static_cast<long long>(layers));
      const figure line = {"stage_cut", params, "slowest / mean", 0, &ratio, 1, 0, nullptr};
      measure_report(state, &line);
    }
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
