/* SPDX-License-Identifier: Apache-2.0 */
/* Workload train_fsdp: milliseconds a step of a model whose parameters, gradients and optimizer states are sharded, or
 * of the same model under data parallelism. One process of the ranks; bench/run starts them. */
#include "measure.h"
#include "training.h"
#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 3, WIDTH = 2048, DEPTH = 4, MLP_ROWS = 32 };

int main(int argc, char **argv) {
  enum { DEVICE, MODEL, STRATEGY, PRECISION, STEPS, OFFLOAD, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--device", "cpu"},   {"--model", "gpt"}, {"--strategy", "fsdp"},
                                            {"--precision", "no"}, {"--steps", "20"},  {"--offload", ""}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const char *model = options[MODEL].value, *strategy = options[STRATEGY].value;
  const char *precision = options[PRECISION].value;
  const int is_gpt = strcmp(model, "gpt") == 0;
  const size_t steps = (size_t)measure_integer(&options[STEPS]);

  accel_state_t *state = workload_state(options[DEVICE].value, precision, 1);
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  fsdp.enabled = strcmp(strategy, "ddp") != 0;
  fsdp.sharding_strategy =
      strcmp(strategy, "zero2") == 0 ? ACCEL_SHARDING_STRATEGY_SHARD_GRAD_OP : ACCEL_SHARDING_STRATEGY_FULL_SHARD;
  fsdp.auto_wrap_policy = ACCEL_AUTO_WRAP_POLICY_TRANSFORMER_BASED_WRAP;
  fsdp.transformer_cls_names_to_wrap = is_gpt ? "GPT2Block" : "Linear";
  if (options[OFFLOAD].value[0] != '\0') {
    fsdp.offload_optimizer = 1;
    fsdp.offload_folder = options[OFFLOAD].value;
  }
  accel_prepare_model_options_t model_options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  model_options.fsdp = &fsdp;
  struct training training = {.model_options = &model_options};
  if (is_gpt)
    workload_gpt(&training, state, WARMUP + steps);
  else
    workload_mlp(&training, state, WIDTH, DEPTH, MLP_ROWS, WARMUP + steps);

  double *samples = measure_allocate(steps * sizeof *samples);
  const double loss = training_run(&training, WARMUP, steps, samples);
  for (size_t i = 0; i < steps; i++) samples[i] *= 1e3;

  accel_value_t report = ACCEL_VALUE_INIT;
  CHECK(accel_step_report(state, 0, &report));
  const accel_value_t *mean = accel_value_get(&report, "mean");
  const double optimizer_ms = 1e3 * accel_value_get(mean, "optimizer")->as.number;
  accel_value_dispose(&report);

  char params[160], extra[200];
  snprintf(params, sizeof params, "{\"model\": \"%s\", \"strategy\": \"%s\", \"batch\": %d, \"procs\": %d}", model,
           strategy, is_gpt ? GPT_BATCH : MLP_ROWS, accel_num_processes(state));
  snprintf(extra, sizeof extra,
           "\"precision\": \"%s\", \"loss\": %.5g, \"anonymous_rss_mb\": %.5g, \"optimizer_ms\": %.4g", precision, loss,
           measure_memory("RssAnon"), optimizer_ms);
  const struct figure figure = {"train_fsdp", params, "ms", 0, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  CHECK(accel_end_training(state));
  training_release(&training);
  accel_state_release(state);
  free(samples);
  return 0;
}
