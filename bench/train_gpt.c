/* Workload train_gpt: tokens a second over all processes. One process of the ranks; bench/run starts them. */
#include "measure.h"
#include "training.h"
#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const recompute_names[] = {"nothing", "all", "keep-matmuls"}; /* by ACCEL_RECOMPUTE_* */

static accel_recompute_t read_recompute(const char *name) {
  for (accel_recompute_t i = 0; i <= ACCEL_RECOMPUTE_KEEP_MATMULS; i++)
    if (strcmp(name, recompute_names[i]) == 0) return i;
  fprintf(stderr, "--activation-checkpointing %s: expected nothing, all or keep-matmuls\n", name);
  exit(2);
}

/* Records all steps: "operators", or "all" with what can be recorded of them; nothing for "no". */
static accel_profile_t *begin_profile(accel_state_t *state, const char *what) {
  accel_profile_options_t options = ACCEL_PROFILE_OPTIONS_INIT;
  accel_profile_t *profile = NULL;
  if (strcmp(what, "no") == 0) return NULL;
  if (strcmp(what, "operators") != 0 && strcmp(what, "all") != 0) {
    fprintf(stderr, "--profile %s: expected no, operators or all\n", what);
    exit(2);
  }
  options.record_shapes = options.profile_memory = options.with_flops = options.with_modules = what[0] == 'a';
  CHECK(accel_profile_begin(state, &options, NULL, NULL, NULL, &profile));
  return profile;
}

/* Of the memory of large tensors, in MiB. */
static double memory_of_tensors(const char *field) {
  accel_value_t report = ACCEL_VALUE_INIT;
  CHECK(accel_memory_report(1, &report));
  const double bytes = (double)accel_value_get(accel_value_get(&report, "cpu"), field)->as.integer;
  accel_value_dispose(&report);
  return bytes / (1 << 20);
}

int main(int argc, char **argv) {
  enum { PRECISION, STEPS, BLOCKS, RECOMPUTE, PROFILE, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--precision", "no"},
                                            {"--steps", "10"},
                                            {"--blocks", "4"},
                                            {"--activation-checkpointing", "nothing"},
                                            {"--profile", "no"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const char *precision = options[PRECISION].value;
  const size_t steps = (size_t)measure_integer(&options[STEPS]);
  const int64_t blocks = measure_integer(&options[BLOCKS]);
  const accel_recompute_t recompute = read_recompute(options[RECOMPUTE].value);

  accel_state_t *state = workload_state(precision, GPT_ACCUMULATE);
  const int32_t ranks = accel_num_processes(state);
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));
  struct training training = {0};
  workload_gpt_of(&training, state, GPT_WARMUP + steps, blocks, recompute);

  double *samples = measure_allocate(steps * sizeof *samples);
  accel_profile_t *const profile = begin_profile(state, options[PROFILE].value);
  const double loss = training_run(&training, GPT_WARMUP, steps, samples);
  if (profile != NULL) CHECK(accel_profile_end(profile));
  accel_profile_release(profile);
  const double peak_mb = memory_of_tensors("most_in_use");
  const double activations_mb = peak_mb - memory_of_tensors("in_use");
  const double tokens_per_step = GPT_ACCUMULATE * GPT_BATCH * GPT_CONTEXT * ranks;
  const double step_ms = measure_median(samples, steps) * 1e3;
  for (size_t i = 0; i < steps; i++) samples[i] = tokens_per_step / samples[i];

  char params[160], extra[160], variant[80] = ""; /* the peer has only the first */
  if (blocks != GPT_BLOCKS || recompute != ACCEL_RECOMPUTE_NOTHING)
    snprintf(variant, sizeof variant, ", \"blocks\": %lld, \"recompute\": \"%s\"", (long long)blocks,
             recompute_names[recompute]);
  if (strcmp(options[PROFILE].value, "no") != 0)
    snprintf(variant, sizeof variant, ", \"profile\": \"%s\"", options[PROFILE].value);
  snprintf(params, sizeof params, "{\"precision\": \"%s\", \"batch\": %d, \"accumulate\": %d, \"procs\": %d%s}",
           precision, GPT_BATCH, GPT_ACCUMULATE, ranks, variant);
  snprintf(extra, sizeof extra,
           "\"step_ms\": %.5g, \"loss\": %.5g, \"tensors_peak_mb\": %.5g, \"activations_mb\": %.5g", step_ms, loss,
           peak_mb, activations_mb);
  const struct figure figure = {"train_gpt", params, "tokens/s", 1, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  CHECK(accel_end_training(state));
  training_release(&training);
  accel_state_release(state);
  free(samples);
  return 0;
}
