/* SPDX-License-Identifier: Apache-2.0 */
/* Workload train_tp: milliseconds a step of a model whose layers are split over the ranks, all of which get the same
 * rows. One process of the ranks; bench/run starts them. */
#include "measure.h"
#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 3, WIDTH = 2048, DEPTH = 4, MLP_ROWS = 32 };

/* Layers 1 and 3 by columns, 2 and 4 by rows; the last one is whole on each rank. */
static const char mlp_plan[] = "0 colwise; 2 rowwise; 4 colwise; 6 rowwise";

/* The next rows in order. Returns the loss. */
static accel_tensor_t *train_step(struct training *training, const struct workload_rows *rows, int64_t step) {
  const int64_t begin = step * rows->batch, end = begin + rows->batch;
  accel_value_t input = accel_arg_tensor(workload_part(rows->inputs, 0, begin, end));
  accel_tensor_t *labels = workload_part(rows->labels, 0, begin, end), *loss = NULL;
  accel_value_t logits = ACCEL_VALUE_INIT;
  CHECK(accel_module_call(training->model, &input, 1, &logits));
  CHECK(accel_cross_entropy(logits.as.tensor, labels, &loss));
  CHECK(accel_backward(training->state, loss, NULL));
  CHECK(accel_optimizer_step(training->optimizer));
  CHECK(accel_optimizer_zero_grad(training->optimizer, 1));
  accel_value_dispose(&logits);
  accel_tensor_release(input.as.tensor);
  accel_tensor_release(labels);
  return loss;
}

static accel_overlap_t read_overlap(const char *name) {
  static const char *const names[] = {"auto", "no", "yes"}; /* by ACCEL_OVERLAP_* */
  for (accel_overlap_t i = 0; i <= ACCEL_OVERLAP_YES; i++)
    if (strcmp(name, names[i]) == 0) return i;
  fprintf(stderr, "--overlap %s: expected auto, no or yes\n", name);
  exit(2);
}

int main(int argc, char **argv) {
  enum { MODEL, STYLE, OVERLAP, REGATHER, STEPS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--model", "gpt"}, {"--style", "tensor"}, {"--overlap", "auto"}, {"--regather", "1"}, {"--steps", "20"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const size_t steps = (size_t)measure_integer(&options[STEPS]);
  const int is_gpt = strcmp(options[MODEL].value, "gpt") == 0;

  accel_state_options_t state_options = ACCEL_STATE_OPTIONS_INIT;
  const char *const processes = getenv("WORLD_SIZE");
  const int ranks = processes == NULL ? 1 : (int)strtol(processes, NULL, 10);
  const char *const style = ranks == 1 ? "none" : options[STYLE].value;
  if (ranks > 1 && strcmp(style, "none") == 0) {
    fprintf(stderr, "--style none: expected one process, not %d\n", ranks);
    return 2;
  }
  state_options.tensor_parallel_size = ranks;
  accel_state_t *state = measure_state(state_options, "cpu");
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_tensor_parallel_options_t split = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
  split.sequence_parallel = strcmp(style, "sequence") == 0;
  split.overlap = read_overlap(options[OVERLAP].value);
  split.regather_inputs = measure_integer(&options[REGATHER]) != 0;
  split.loss_parallel = is_gpt; /* class scores stay split, as in the other half */
  if (!is_gpt) split.plan = mlp_plan;
  accel_prepare_model_options_t model_options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  if (ranks > 1) model_options.tensor_parallel = &split;
  accel_adam_options_t adam_options = ACCEL_ADAM_OPTIONS_INIT;
  adam_options.lr = is_gpt ? 3e-4 : 1e-3;

  accel_module_t *model = is_gpt ? workload_make_gpt(&kGpt, ACCEL_RECOMPUTE_NOTHING) : workload_make_mlp(WIDTH, DEPTH);
  const int64_t batch = is_gpt ? GPT_BATCH : MLP_ROWS, n_rows = batch * (int64_t)(WARMUP + steps);
  const struct workload_rows rows = is_gpt ? workload_gpt_rows(batch, n_rows) : workload_mlp_rows(batch, n_rows, WIDTH);
  struct training training = {.state = state};
  accel_optimizer_t *adamw = NULL;
  CHECK(accel_optimizer_adamw(model, &adam_options, &adamw));
  CHECK(accel_prepare_model(state, model, &model_options, &training.model));
  CHECK(accel_prepare_optimizer(state, adamw, &training.optimizer));
  accel_optimizer_release(adamw);
  accel_module_release(model);

  double *samples = measure_allocate(steps * sizeof *samples);
  accel_tensor_t *loss = NULL;
  double processor = 0, received = 0;
  for (size_t step = 0; step < WARMUP + steps; step++) {
    if (step == WARMUP) {
      received = measure_received(state, "tensor");
      processor = measure_processor();
    }
    accel_tensor_release(loss);
    const double start = measure_now();
    loss = train_step(&training, &rows, (int64_t)step);
    if (step >= WARMUP) samples[step - WARMUP] = 1e3 * (measure_now() - start);
  }
  processor = measure_sum(state, measure_processor() - processor) / (double)steps;
  received = measure_sum(state, measure_received(state, "tensor") - received) / (double)steps;
  double last_loss = 0;
  CHECK(accel_tensor_item(loss, &last_loss));
  accel_tensor_release(loss);

  char params[160], extra[160];
  snprintf(params, sizeof params, "{\"model\": \"%s\", \"style\": \"%s\", \"batch\": %lld, \"procs\": %d}",
           options[MODEL].value, style, (long long)rows.batch, ranks);
  snprintf(extra, sizeof extra,
           "\"loss\": %.5g, \"received_mb_per_step\": %.4g, \"processor_ms_per_step\": %.4g, \"overlap\": \"%s\"",
           last_loss, received / (1 << 20), 1e3 * processor, options[OVERLAP].value);
  const struct figure figure = {"train_tp", params, "ms", 0, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  CHECK(accel_end_training(state));
  training_release(&training);
  accel_tensor_release(rows.inputs);
  accel_tensor_release(rows.labels);
  accel_state_release(state);
  free(samples);
  return 0;
}
