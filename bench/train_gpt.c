/* Workload train_gpt: tokens a second over all processes. One process of the ranks; bench/run starts them. */
#include "measure.h"
#include "training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 8
#define ACCUMULATE 4
#define CONTEXT 128
#define WARMUP 2

/* 3.3 M parameters: 4 blocks of 256 with 4 heads, exact GELU, no dropout, a head of its own. */
static const char config[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 256, \"n_positions\": 128, \"n_embd\": 256, \"n_layer\": 4, "
    "\"n_head\": 4,"
    " \"activation_function\": \"gelu\", \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0,"
    " \"tie_word_embeddings\": false}";

static accel_tensor_t *columns(accel_tensor_t *tensor, int64_t begin, int64_t end) {
  const accel_op_t *slice = NULL;
  const accel_value_t arguments[] = {accel_arg_tensor(tensor), accel_arg_int(1), accel_arg_int(begin),
                                     accel_arg_int(end)};
  accel_value_t view = ACCEL_VALUE_INIT;
  accel_tensor_t *copy = NULL;
  size_t n_results = 0;
  CHECK(accel_op_find("aten::slice", "Tensor", &slice));
  CHECK(accel_op_call(slice, arguments, 4, &view, 1, &n_results));
  CHECK(accel_tensor_contiguous(view.as.tensor, &copy));
  accel_value_dispose(&view);
  return copy;
}

int main(int argc, char **argv) {
  enum { PRECISION, STEPS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--precision", "no"}, {"--steps", "10"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const char *precision = options[PRECISION].value;
  const size_t steps = (size_t)measure_integer(&options[STEPS]);

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  settings.mixed_precision = strcmp(precision, "bf16") == 0 ? ACCEL_PRECISION_BF16 : ACCEL_PRECISION_NO;
  settings.gradient_accumulation_steps = ACCUMULATE;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&settings, &state));
  const int32_t ranks = accel_num_processes(state);
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_module_t *model = NULL;
  CHECK(accel_module_from_config(config, &model));
  accel_tensor_t *tokens = NULL;
  const int64_t shape[] = {BATCH * ranks * ACCUMULATE * (int64_t)(WARMUP + steps), CONTEXT + 1};
  CHECK(accel_tensor_randint(0, 256, shape, 2, &tokens));
  struct training training;
  training_prepare(&training, state, model, 3e-4, columns(tokens, 0, CONTEXT), columns(tokens, 1, CONTEXT + 1), BATCH);
  accel_tensor_release(tokens);

  double *samples = measure_allocate(steps * sizeof *samples);
  const double loss = training_run(&training, WARMUP, steps, samples);
  const double tokens_per_step = ACCUMULATE * BATCH * CONTEXT * ranks;
  const double step_ms = measure_median(samples, steps) * 1e3;
  for (size_t i = 0; i < steps; i++) samples[i] = tokens_per_step / samples[i];

  char params[160], extra[96];
  snprintf(params, sizeof params, "{\"precision\": \"%s\", \"batch\": %d, \"accumulate\": %d, \"procs\": %d}",
           precision, BATCH, ACCUMULATE, ranks);
  snprintf(extra, sizeof extra, "\"step_ms\": %.5g, \"loss\": %.5g", step_ms, loss);
  const struct figure figure = {"train_gpt", params, "tokens/s", 1, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  CHECK(accel_end_training(state));
  training_release(&training);
  accel_state_release(state);
  free(samples);
  return 0;
}
