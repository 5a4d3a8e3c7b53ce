/* Workload train_gpt: tokens a second over all processes. One process of the ranks; bench/run starts them. */
#include "measure.h"
#include "training.h"
#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  enum { PRECISION, STEPS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--precision", "no"}, {"--steps", "10"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const char *precision = options[PRECISION].value;
  const size_t steps = (size_t)measure_integer(&options[STEPS]);

  accel_state_t *state = workload_state(precision, GPT_ACCUMULATE);
  const int32_t ranks = accel_num_processes(state);
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));
  struct training training = {0};
  workload_gpt(&training, state, GPT_WARMUP + steps);

  double *samples = measure_allocate(steps * sizeof *samples);
  const double loss = training_run(&training, GPT_WARMUP, steps, samples);
  const double tokens_per_step = GPT_ACCUMULATE * GPT_BATCH * GPT_CONTEXT * ranks;
  const double step_ms = measure_median(samples, steps) * 1e3;
  for (size_t i = 0; i < steps; i++) samples[i] = tokens_per_step / samples[i];

  char params[160], extra[96];
  snprintf(params, sizeof params, "{\"precision\": \"%s\", \"batch\": %d, \"accumulate\": %d, \"procs\": %d}",
           precision, GPT_BATCH, GPT_ACCUMULATE, ranks);
  snprintf(extra, sizeof extra, "\"step_ms\": %.5g, \"loss\": %.5g", step_ms, loss);
  const struct figure figure = {"train_gpt", params, "tokens/s", 1, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  CHECK(accel_end_training(state));
  training_release(&training);
  accel_state_release(state);
  free(samples);
  return 0;
}
