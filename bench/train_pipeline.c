/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads train_pipeline and pipeline_forward: milliseconds a step, or a forward, of a model in stages on the ranks.
 * One process of the ranks; bench/run starts them. */
#include "measure.h"
#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 3, WIDTH = 2048, DEPTH = 4, GPT_ROWS = 32, MLP_ROWS = 128 };

struct pipeline {
  struct training training;
  struct workload_rows rows;
  int forward_only;
};

/* Blocks, and layers, are shared out evenly: what is before them is in the first stage, what is behind them in the
 * last. */
static const char *even_split(int is_gpt, int stages) {
  if (is_gpt) return stages == 1 ? "6" : stages == 2 ? "3,3" : "2,1,1,2";
  return stages == 1 ? "9" : stages == 2 ? "4,5" : "2,2,2,3";
}

/* The result of an operator with one argument. */
static accel_value_t apply(const char *operator_name, const accel_value_t *argument) {
  const accel_op_t *op = NULL;
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_op_find(operator_name, "", &op));
  CHECK(accel_op_call(op, argument, 1, &result, 1, &n_results));
  return result;
}

static double mean_magnitude(const accel_value_t *tensor) {
  accel_value_t magnitudes = apply("aten::abs", tensor), mean = apply("aten::mean", &magnitudes);
  double number = 0;
  CHECK(accel_tensor_item(mean.as.tensor, &number));
  accel_value_dispose(&magnitudes);
  accel_value_dispose(&mean);
  return number;
}

/* The loss of a step with the next rows in order; of a forward the mean magnitude of the output, where it is. */
static double step(struct pipeline *pipeline, int64_t number) {
  struct training *const training = &pipeline->training;
  const struct workload_rows *const rows = &pipeline->rows;
  const int64_t begin = pipeline->forward_only ? 0 : number * rows->batch, end = begin + rows->batch;
  accel_value_t input = accel_arg_tensor(workload_part(rows->inputs, 0, begin, end));
  double result = 0;
  if (pipeline->forward_only) {
    accel_value_t logits = ACCEL_VALUE_INIT;
    CHECK(accel_module_call(training->model, &input, 1, &logits));
    if (logits.kind == ACCEL_VALUE_TENSOR) result = mean_magnitude(&logits);
    accel_value_dispose(&logits);
  } else {
    accel_value_t labels = accel_arg_tensor(workload_part(rows->labels, 0, begin, end));
    CHECK(accel_pipeline_step(training->state, training->model, &input, &labels, "cross_entropy", NULL, NULL, NULL,
                              &result));
    CHECK(accel_optimizer_step(training->optimizer));
    CHECK(accel_optimizer_zero_grad(training->optimizer, 1));
    accel_tensor_release(labels.as.tensor);
  }
  accel_tensor_release(input.as.tensor);
  return result;
}

int main(int argc, char **argv) {
  enum { MODEL, SCHEDULE, MICRO_BATCHES, SPLIT, FORWARD, STEPS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--model", "gpt"},  {"--schedule", "1f1b"}, {"--microbatches", "4"},
                                            {"--split", "even"}, {"--forward", "0"},     {"--steps", "10"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const size_t steps = (size_t)measure_integer(&options[STEPS]);
  const int is_gpt = strcmp(options[MODEL].value, "gpt") == 0;
  const char *const processes = getenv("WORLD_SIZE");
  const int ranks = processes == NULL ? 1 : (int)strtol(processes, NULL, 10);

  accel_state_options_t state_options = ACCEL_STATE_OPTIONS_INIT;
  state_options.pipeline_parallel_size = ranks;
  accel_state_t *state = measure_state(state_options, "cpu");
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_pipeline_options_t stages = ACCEL_PIPELINE_OPTIONS_INIT;
  const char *const schedule = ranks == 1 ? "none" : options[SCHEDULE].value;
  const int is_v = strcmp(schedule, "zbv") == 0, chunks = is_v || strcmp(schedule, "interleaved") == 0 ? 2 : 1;
  if (ranks > 1) stages.schedule = is_v ? "zero_bubble_v" : schedule;
  stages.micro_batches = measure_integer(&options[MICRO_BATCHES]);
  const int is_even = strcmp(options[SPLIT].value, "even") == 0 && strcmp(schedule, "auto") != 0;
  if (is_even) stages.split = even_split(is_gpt, ranks * chunks);
  if (!is_even && strcmp(options[SPLIT].value, "even") != 0) stages.split = options[SPLIT].value;
  accel_prepare_model_options_t model_options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  model_options.pipeline = &stages;
  accel_adam_options_t adam_options = ACCEL_ADAM_OPTIONS_INIT;
  adam_options.lr = is_gpt ? 3e-4 : 1e-3;

  struct pipeline pipeline = {.training = {.state = state}, .forward_only = measure_integer(&options[FORWARD]) != 0};
  struct training *const training = &pipeline.training;
  accel_module_t *model = is_gpt ? workload_make_gpt(&kGpt, ACCEL_RECOMPUTE_NOTHING) : workload_make_mlp(WIDTH, DEPTH);
  const int64_t batch = is_gpt ? GPT_ROWS : MLP_ROWS;
  const int64_t n_rows = pipeline.forward_only ? batch : batch * (int64_t)(WARMUP + steps);
  pipeline.rows = is_gpt ? workload_gpt_rows(batch, n_rows) : workload_mlp_rows(batch, n_rows, WIDTH);
  accel_optimizer_t *adamw = NULL;
  CHECK(accel_prepare_model(state, model, &model_options, &training->model));
  CHECK(accel_optimizer_adamw(model, &adam_options, &adamw));
  CHECK(accel_prepare_optimizer(state, adamw, &training->optimizer));
  accel_optimizer_release(adamw);
  accel_module_release(model);
  if (pipeline.forward_only) CHECK(accel_module_train(training->model, 0));

  double *samples = measure_allocate(steps * sizeof *samples);
  double processor = 0, received = 0, result = 0;
  for (size_t number = 0; number < WARMUP + steps; number++) {
    if (number == WARMUP) {
      received = measure_received(state, "pipeline");
      processor = measure_processor();
    }
    const double start = measure_now();
    result = step(&pipeline, (int64_t)number);
    if (number >= WARMUP) samples[number - WARMUP] = 1e3 * (measure_now() - start);
  }
  processor = measure_sum(state, measure_processor() - processor) / (double)steps;
  received = measure_sum(state, measure_received(state, "pipeline") - received) / (double)steps;
  if (pipeline.forward_only) result = measure_sum(state, result);

  char params[200], extra[200];
  if (pipeline.forward_only)
    snprintf(params, sizeof params, "{\"model\": \"%s\", \"chunks\": %s, \"batch\": %lld, \"procs\": %d}",
             options[MODEL].value, options[MICRO_BATCHES].value, (long long)batch, ranks);
  else
    snprintf(params, sizeof params,
             "{\"model\": \"%s\", \"schedule\": \"%s\", \"microbatches\": %s, \"batch\": %lld, \"procs\": %d}",
             options[MODEL].value, schedule, options[MICRO_BATCHES].value, (long long)batch, ranks);
  snprintf(extra, sizeof extra, "\"%s\": %.5g, \"received_mb_per_step\": %.4g, \"processor_ms_per_step\": %.4g",
           pipeline.forward_only ? "mean_magnitude" : "loss", result, received / (1 << 20), 1e3 * processor);
  const struct figure figure = {pipeline.forward_only ? "pipeline_forward" : "train_pipeline",
                                params,
                                "ms",
                                0,
                                samples,
                                steps,
                                base_rss_mb,
                                extra};
  measure_report(state, &figure);

  CHECK(accel_end_training(state));
  training_release(training);
  accel_tensor_release(pipeline.rows.inputs);
  accel_tensor_release(pipeline.rows.labels);
  accel_state_release(state);
  free(samples);
  return 0;
}
