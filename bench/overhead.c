/* SPDX-License-Identifier: Apache-2.0 */
/* Workload overhead: microseconds a step of a model with one number, where nothing is left but the library itself. */
#include "measure.h"

#include <math.h>
#include <stdlib.h>

struct loop {
  accel_state_t *state; /* NULL: nothing is prepared */
  accel_device_t device;
  accel_module_t *model;
  accel_optimizer_t *optimizer;
  accel_value_t input;
};

static accel_status_t forward(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                              accel_value_t *out_output, void *user_data) {
  accel_tensor_t *weight = NULL;
  size_t n_results = 0;
  (void)n_inputs;
  accel_status_t status = accel_module_tensor(module, "weight", &weight);
  if (status != ACCEL_OK) return status;
  const accel_value_t factors[] = {accel_arg_tensor(weight), inputs[0]};
  status = accel_op_call(user_data, factors, 2, out_output, 1, &n_results);
  accel_tensor_release(weight);
  return status;
}

static accel_module_t *make_model(accel_device_t device) {
  const accel_op_t *mul = NULL;
  accel_module_t *model = NULL;
  accel_tensor_t *one = NULL;
  CHECK(accel_op_find("aten::mul", "Tensor", &mul));
  CHECK(accel_tensor_full(NULL, 0, 1.0, ACCEL_DTYPE_FLOAT32, &device, &one));
  CHECK(accel_module_create("Scalar", &model));
  CHECK(accel_module_add_parameter(model, "weight", one, 1));
  CHECK(accel_module_set_forward(model, forward, (void *)mul, NULL));
  accel_tensor_release(one);
  return model;
}

static struct loop make_loop(accel_state_t *state, int prepared) {
  const accel_device_t device = *accel_device(state);
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  accel_tensor_t *half = NULL;
  struct loop loop = {NULL, device, make_model(device), NULL, ACCEL_VALUE_INIT};
  sgd.lr = 1e-6;
  CHECK(accel_optimizer_sgd(loop.model, &sgd, &loop.optimizer));
  CHECK(accel_tensor_full(NULL, 0, 0.5, ACCEL_DTYPE_FLOAT32, &device, &half));
  loop.input = accel_arg_tensor(half);
  if (!prepared) return loop;
  const struct loop plain = loop;
  loop.state = state;
  CHECK(accel_prepare_model(state, plain.model, NULL, &loop.model));
  CHECK(accel_prepare_optimizer(state, plain.optimizer, &loop.optimizer));
  accel_optimizer_release(plain.optimizer);
  accel_module_release(plain.model);
  return loop;
}

static void release_loop(struct loop *loop) {
  accel_optimizer_release(loop->optimizer);
  accel_module_release(loop->model);
  accel_tensor_release(loop->input.as.tensor);
}

/* Microseconds a step. */
static double run(struct loop *loop, size_t steps) {
  const double start = measure_now();
  for (size_t i = 0; i < steps; i++) {
    accel_scope_t *scope = NULL;
    accel_value_t loss = ACCEL_VALUE_INIT;
    if (loop->state != NULL) CHECK(accel_accumulate_begin(loop->state, &loop->model, 1, &scope));
    CHECK(accel_module_call(loop->model, &loop->input, 1, &loss));
    if (loop->state != NULL)
      CHECK(accel_backward(loop->state, loss.as.tensor, NULL));
    else
      CHECK(accel_tensor_backward(loss.as.tensor, NULL));
    CHECK(accel_optimizer_step(loop->optimizer));
    CHECK(accel_optimizer_zero_grad(loop->optimizer, 1));
    if (scope != NULL) CHECK(accel_scope_end(scope));
    accel_value_dispose(&loss);
  }
  CHECK(accel_device_synchronize(&loop->device));
  return (measure_now() - start) / (double)steps * 1e6;
}

int main(int argc, char **argv) {
  enum { DEVICE, STEPS, REPEAT, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--device", "cpu"}, {"--steps", "2000"}, {"--repeat", "5"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const size_t steps = (size_t)measure_integer(&options[STEPS]), repeat = (size_t)measure_integer(&options[REPEAT]);

  const accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = measure_state(settings, options[DEVICE].value);
  const double base_rss_mb = measure_memory("VmHWM");

  enum { PLAIN, ACCELERATED, DIFFERENCE, N_FIGURES };
  const char *const params[N_FIGURES] = {"{\"loop\": \"plain\"}", "{\"loop\": \"accelerated\"}",
                                         "{\"loop\": \"difference\"}"};
  double *samples[N_FIGURES];
  for (int i = 0; i < N_FIGURES; i++) samples[i] = measure_allocate(repeat * sizeof(double));
  struct loop plain = make_loop(state, 0), accelerated = make_loop(state, 1);
  run(&plain, steps);
  run(&accelerated, steps);
  for (size_t i = 0; i < repeat; i++) {
    samples[PLAIN][i] = run(&plain, steps);
    samples[ACCELERATED][i] = run(&accelerated, steps);
    /* On a busy machine the plain loop may be the slower one: the difference then costs nothing. */
    samples[DIFFERENCE][i] = fmax(0, samples[ACCELERATED][i] - samples[PLAIN][i]);
  }
  for (int i = 0; i < N_FIGURES; i++) {
    const struct figure figure = {"overhead", params[i], "us", 0, samples[i], repeat, base_rss_mb, NULL};
    measure_report(state, &figure);
    free(samples[i]);
  }
  release_loop(&plain);
  release_loop(&accelerated);
  accel_state_release(state);
  return 0;
}
