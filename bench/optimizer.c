/* Workload optimizer: milliseconds a step of AdamW over 8 parameters of 2048 x 2048 numbers. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>

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

static accel_tensor_t *random_matrix(void) {
  const int64_t shape[] = {SIZE, SIZE};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_tensor_t *matrix = NULL;
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, cpu, &matrix));
  return matrix;
}

/* A parameter with a random gradient: that of the sum of its products with the gradient. */
static accel_tensor_t *make_parameter(void) {
  accel_tensor_t *parameter = random_matrix(), *gradient = random_matrix();
  CHECK(accel_tensor_set_requires_grad(parameter, 1));
  const accel_value_t factors[] = {accel_arg_tensor(parameter), accel_arg_tensor(gradient)};
  accel_tensor_t *products = apply("aten::mul", "Tensor", factors, 2);
  const accel_value_t terms = accel_arg_tensor(products);
  accel_tensor_t *sum = apply("aten::sum", "", &terms, 1);
  CHECK(accel_tensor_backward(sum));
  accel_tensor_release(sum);
  accel_tensor_release(products);
  accel_tensor_release(gradient);
  return parameter;
}

int main(int argc, char **argv) {
  enum { VARIANT, STEPS, THREADS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--variant", "fused"}, {"--steps", "10"}, {"--threads", "2"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const size_t steps = (size_t)measure_integer(&options[STEPS]);

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&settings, &state));
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_tensor_t *parameters[N_PARAMETERS];
  accel_optimizer_t *optimizer = NULL;
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = 1e-3;
  adam.weight_decay = 0.01;
  for (size_t i = 0; i < N_PARAMETERS; i++) parameters[i] = make_parameter();
  CHECK(accel_optimizer_adamw(NULL, &adam, &optimizer));
  CHECK(accel_optimizer_add_group(optimizer, parameters, N_PARAMETERS, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE));

  double *samples = measure_allocate(steps * sizeof *samples);
  measure_reset_peak();
  for (size_t i = 0; i < WARMUP; i++) CHECK(accel_optimizer_step(optimizer));
  for (size_t i = 0; i < steps; i++) {
    const double start = measure_now();
    CHECK(accel_optimizer_step(optimizer));
    samples[i] = (measure_now() - start) * 1e3;
  }

  /* Each step reads the parameter, its gradient and both moments, and writes all but the gradient. */
  const double moved = 7.0 * 4 * N_PARAMETERS * SIZE * SIZE;
  char params[160], extra[96];
  snprintf(params, sizeof params, "{\"variant\": \"%s\", \"parameters\": %d, \"threads\": %s}", options[VARIANT].value,
           N_PARAMETERS * SIZE * SIZE, options[THREADS].value);
  snprintf(extra, sizeof extra, "\"implementation\": \"fused\", \"gb_per_s\": %.5g",
           moved / measure_median(samples, steps) / 1e6);
  const struct figure figure = {"optimizer", params, "ms", 0, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  accel_optimizer_release(optimizer);
  for (size_t i = 0; i < N_PARAMETERS; i++) accel_tensor_release(parameters[i]);
  accel_state_release(state);
  free(samples);
  return 0;
}
