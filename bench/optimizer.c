/* SPDX-License-Identifier: Apache-2.0 */
/* Workload optimizer: milliseconds a step over 8 parameters of 2048 x 2048 numbers, of each kind of optimizer. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PARAMETERS 8
#define SIZE 2048
#define WARMUP 2

/* Calls an operator with one result. */
static accel_tensor_t *apply(const char *name, const char *overload, const accel_value_t *arguments,
                             size_t n_arguments) {
  const accel_op_t *op = NULL;
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_op_find(name, overload, &op));
  CHECK(accel_op_call(op, arguments, n_arguments, &result, 1, &n_results));
  return result.as.tensor;
}

static accel_tensor_t *random_matrix(const accel_device_t *device) {
  const int64_t shape[] = {SIZE, SIZE};
  accel_tensor_t *matrix = NULL;
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, device, &matrix));
  return matrix;
}

/* A parameter with a random gradient: that of the sum of its products with the gradient. */
static accel_tensor_t *make_parameter(const accel_device_t *device) {
  accel_tensor_t *parameter = random_matrix(device), *gradient = random_matrix(device);
  CHECK(accel_tensor_set_requires_grad(parameter, 1));
  const accel_value_t factors[] = {accel_arg_tensor(parameter), accel_arg_tensor(gradient)};
  accel_tensor_t *products = apply("aten::mul", "Tensor", factors, 2);
  const accel_value_t terms = accel_arg_tensor(products);
  accel_tensor_t *sum = apply("aten::sum", "", &terms, 1);
  CHECK(accel_tensor_backward(sum, NULL));
  accel_tensor_release(sum);
  accel_tensor_release(products);
  accel_tensor_release(gradient);
  return parameter;
}

/* An optimizer by its name, and the numbers of 4 bytes that its step must read and write for each of the parameter's.
 */
static accel_optimizer_t *make_optimizer(const char *name, double *words) {
  accel_optimizer_t *optimizer = NULL;
  accel_sgd_options_t momentum = ACCEL_SGD_OPTIONS_INIT;
  accel_adam_options_t adamw = ACCEL_ADAM_OPTIONS_INIT;
  momentum.momentum = 0.9;
  adamw.weight_decay = 0.01;
  *words = 7; /* the parameter, its gradient and two states are read, all but the gradient are written */
  if (strcmp(name, "adamw") == 0) {
    CHECK(accel_optimizer_adamw(NULL, &adamw, &optimizer));
  } else if (strcmp(name, "adam") == 0) {
    CHECK(accel_optimizer_adam(NULL, NULL, &optimizer));
  } else if (strcmp(name, "adamw_8bit") == 0) {
    CHECK(accel_optimizer_adamw_8bit(NULL, &adamw, &optimizer));
    *words = 4; /* the states have a byte each */
  } else if (strcmp(name, "sgd") == 0) {
    CHECK(accel_optimizer_sgd(NULL, NULL, &optimizer));
    *words = 3;
  } else if (strcmp(name, "momentum") == 0) {
    CHECK(accel_optimizer_sgd(NULL, &momentum, &optimizer));
    *words = 5;
  } else if (strcmp(name, "adagrad") == 0) {
    CHECK(accel_optimizer_adagrad(NULL, NULL, &optimizer));
    *words = 5;
  } else if (strcmp(name, "rmsprop") == 0) {
    CHECK(accel_optimizer_rmsprop(NULL, NULL, &optimizer));
    *words = 5;
  } else if (strcmp(name, "adamax") == 0) {
    CHECK(accel_optimizer_adamax(NULL, NULL, &optimizer));
  } else if (strcmp(name, "nadam") == 0) {
    CHECK(accel_optimizer_nadam(NULL, NULL, &optimizer));
  } else if (strcmp(name, "radam") == 0) {
    CHECK(accel_optimizer_radam(NULL, NULL, &optimizer));
  } else if (strcmp(name, "lion") == 0) {
    CHECK(accel_optimizer_lion(NULL, NULL, &optimizer));
    *words = 5;
  } else if (strcmp(name, "lamb") == 0) {
    CHECK(accel_optimizer_lamb(NULL, NULL, &optimizer));
    *words = 10; /* how far it goes is known at the end only: parameter and states are read again */
  } else if (strcmp(name, "adafactor") == 0) {
    CHECK(accel_optimizer_adafactor(NULL, NULL, &optimizer));
    *words = 6; /* the gradient is read for its means, for the length of the step and for the step */
  } else if (strcmp(name, "muon") == 0) {
    CHECK(accel_optimizer_muon(NULL, NULL, &optimizer));
    *words = 5;
  } else {
    fprintf(stderr, "optimizer %s is not known\n", name);
    exit(2);
  }
  return optimizer;
}

/* Gigabytes a second of an update that reads two numbers and writes one: what the memory gives to a step. */
static double memory_bandwidth(const accel_state_t *state, accel_tensor_t *const *parameters) {
  accel_optimizer_t *sgd = NULL;
  double samples[9];
  accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
  options.lr = 0;
  CHECK(accel_optimizer_sgd(NULL, &options, &sgd));
  CHECK(accel_optimizer_add_group(sgd, parameters, N_PARAMETERS, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE));
  for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
    const double start = measure_now();
    CHECK(accel_optimizer_step(sgd));
    measure_wait(state);
    samples[i] = measure_now() - start;
  }
  accel_optimizer_release(sgd);
  return 3.0 * 4 * N_PARAMETERS * SIZE * SIZE / measure_median(samples, sizeof samples / sizeof *samples) / 1e9;
}

int main(int argc, char **argv) {
  enum { DEVICE, NAME, VARIANT, STEPS, THREADS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--device", "cpu"}, {"--optimizer", "adamw"}, {"--variant", "fused"}, {"--steps", "10"}, {"--threads", "2"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const size_t steps = (size_t)measure_integer(&options[STEPS]);

  const accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = measure_state(settings, options[DEVICE].value);
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_tensor_t *parameters[N_PARAMETERS];
  for (size_t i = 0; i < N_PARAMETERS; i++) parameters[i] = make_parameter(accel_device(state));
  double words = 0;
  const double bandwidth = memory_bandwidth(state, parameters);
  accel_optimizer_t *optimizer = make_optimizer(options[NAME].value, &words);
  CHECK(accel_optimizer_add_group(optimizer, parameters, N_PARAMETERS, 1e-3, ACCEL_UNSET_DOUBLE));

  double *samples = measure_allocate(steps * sizeof *samples);
  measure_reset_peak();
  for (size_t i = 0; i < WARMUP; i++) CHECK(accel_optimizer_step(optimizer));
  measure_wait(state);
  for (size_t i = 0; i < steps; i++) {
    const double start = measure_now();
    CHECK(accel_optimizer_step(optimizer));
    measure_wait(state);
    samples[i] = (measure_now() - start) * 1e3;
  }

  const double milliseconds = measure_median(samples, steps);
  const double rate = words * 4 * N_PARAMETERS * SIZE * SIZE / milliseconds / 1e6;
  char bench[64] = "optimizer", params[160], extra[160];
  if (strcmp(options[NAME].value, "adamw") != 0) snprintf(bench, sizeof bench, "optimizer_%s", options[NAME].value);
  snprintf(params, sizeof params, "{\"variant\": \"%s\", \"parameters\": %d, \"threads\": %s}", options[VARIANT].value,
           N_PARAMETERS * SIZE * SIZE, options[THREADS].value);
  snprintf(extra, sizeof extra, "\"gb_per_s\": %.5g, \"memory_gb_per_s\": %.5g, \"of_bound\": %.4g, \"state_mb\": %.5g",
           rate, bandwidth, bandwidth / rate, (double)accel_optimizer_state_bytes(optimizer) / (1 << 20));
  const struct figure figure = {bench, params, "ms", 0, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  accel_optimizer_release(optimizer);
  for (size_t i = 0; i < N_PARAMETERS; i++) accel_tensor_release(parameters[i]);
  accel_state_release(state);
  free(samples);
  return 0;
}
