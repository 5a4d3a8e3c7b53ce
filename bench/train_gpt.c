/* SPDX-License-Identifier: Apache-2.0 */
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

/* The memory of the tensors on a device in MiB, on the CPU that of the large ones. */
static void memory_of_tensors(const accel_device_t *device, double *peak, double *now) {
  const int on_host = device->type == ACCEL_DEVICE_CPU;
  accel_value_t report = ACCEL_VALUE_INIT;
  if (on_host)
    CHECK(accel_memory_report(1, &report));
  else
    CHECK(accel_device_memory(device, &report));
  const accel_value_t *memory = on_host ? accel_value_get(&report, "cpu") : &report;
  *peak = (double)accel_value_get(memory, on_host ? "most_in_use" : "peak_allocated")->as.integer / (1 << 20);
  *now = (double)accel_value_get(memory, on_host ? "in_use" : "allocated")->as.integer / (1 << 20);
  accel_value_dispose(&report);
}

int main(int argc, char **argv) {
  enum { DEVICE, MODEL, PRECISION, STEPS, BLOCKS, RECOMPUTE, PROFILE, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--device", "cpu"},   {"--model", "small"},
                                            {"--precision", "no"}, {"--steps", "10"},
                                            {"--blocks", "0"},     {"--activation-checkpointing", "nothing"},
                                            {"--profile", "no"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const char *precision = options[PRECISION].value;
  const size_t steps = (size_t)measure_integer(&options[STEPS]);
  const int is_gpt2 = strcmp(options[MODEL].value, "gpt2-small") == 0;
  if (!is_gpt2 && strcmp(options[MODEL].value, "small") != 0) {
    fprintf(stderr, "--model %s: expected small or gpt2-small\n", options[MODEL].value);
    exit(2);
  }
  struct gpt gpt = is_gpt2 ? kGpt2Small : kGpt;
  const int64_t own_blocks = gpt.blocks, given_blocks = measure_integer(&options[BLOCKS]);
  if (given_blocks > 0) gpt.blocks = given_blocks;
  const accel_recompute_t recompute = read_recompute(options[RECOMPUTE].value);

  accel_state_t *state = workload_state(options[DEVICE].value, precision, gpt.accumulate);
  const int32_t ranks = accel_num_processes(state);
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));
  struct training training = {0};
  workload_gpt_of(&training, state, GPT_WARMUP + steps, &gpt, recompute);

  double *samples = measure_allocate(steps * sizeof *samples);
  accel_profile_t *const profile = begin_profile(state, options[PROFILE].value);
  const double loss = training_run(&training, GPT_WARMUP, steps, samples);
  if (profile != NULL) CHECK(accel_profile_end(profile));
  accel_profile_release(profile);
  double peak_mb = 0, activations_mb = 0;
  memory_of_tensors(accel_device(state), &peak_mb, &activations_mb);
  activations_mb = peak_mb - activations_mb;
  const double tokens_per_step = (double)(gpt.accumulate * GPT_BATCH * gpt.context * ranks);
  const double step_ms = measure_median(samples, steps) * 1e3;
  for (size_t i = 0; i < steps; i++) samples[i] = tokens_per_step / samples[i];

  char params[160], extra[160], variant[80] = ""; /* the peer has only the first */
  if (gpt.blocks != own_blocks || recompute != ACCEL_RECOMPUTE_NOTHING)
    snprintf(variant, sizeof variant, ", \"blocks\": %lld, \"recompute\": \"%s\"", (long long)gpt.blocks,
             recompute_names[recompute]);
  if (strcmp(options[PROFILE].value, "no") != 0)
    snprintf(variant, sizeof variant, ", \"profile\": \"%s\"", options[PROFILE].value);
  snprintf(params, sizeof params, "{\"precision\": \"%s\", \"batch\": %d, \"accumulate\": %d, \"procs\": %d%s}",
           precision, GPT_BATCH, (int)gpt.accumulate, ranks, variant);
  snprintf(extra, sizeof extra,
           "\"step_ms\": %.5g, \"loss\": %.5g, \"tensors_peak_mb\": %.5g, \"activations_mb\": %.5g", step_ms, loss,
           peak_mb, activations_mb);
  const struct figure figure = {
      is_gpt2 ? "train_gpt2_small" : "train_gpt", params, "tokens/s", 1, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  CHECK(accel_end_training(state));
  training_release(&training);
  accel_state_release(state);
  free(samples);
  return 0;
}
