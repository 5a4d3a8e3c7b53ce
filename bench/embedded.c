/* SPDX-License-Identifier: Apache-2.0 */
/* Workload embedded: what a program with a loop of its own pays in one process with the embedded defaults: milliseconds
 * of the first calls, and microseconds of each later step, both of processor time. */
#define _POSIX_C_SOURCE 200809L
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 32, INPUTS = 64, HIDDEN = 64, OUTPUTS = 8, LAYERS = 3 };

struct loop {
  accel_state_t *state;
  accel_module_t *model;
  accel_optimizer_t *optimizer;
  accel_tensor_t *x, *y;
};

static double seconds_of_thread(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct loop make_loop(void) {
  struct loop loop = {NULL, NULL, NULL, NULL, NULL};
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = options.embedded = 1;
  CHECK(accel_state_create(&options, &loop.state));
  accel_module_t *layers[LAYERS] = {NULL};
  CHECK(accel_module_linear(INPUTS, HIDDEN, 1, &layers[0]));
  CHECK(accel_module_activation("tanh", &layers[1]));
  CHECK(accel_module_linear(HIDDEN, OUTPUTS, 1, &layers[2]));
  CHECK(accel_module_sequential(layers, LAYERS, &loop.model));
  for (int i = 0; i < LAYERS; i++) accel_module_release(layers[i]);
  CHECK(accel_optimizer_adamw(loop.model, NULL, &loop.optimizer));
  const int64_t inputs[] = {BATCH, INPUTS}, outputs[] = {BATCH, OUTPUTS};
  CHECK(accel_tensor_randn(inputs, 2, ACCEL_DTYPE_FLOAT32, accel_device(loop.state), &loop.x));
  CHECK(accel_tensor_randn(outputs, 2, ACCEL_DTYPE_FLOAT32, accel_device(loop.state), &loop.y));
  return loop;
}

static void step(const struct loop *loop) {
  const accel_value_t input = accel_arg_tensor(loop->x);
  accel_value_t output = ACCEL_VALUE_INIT;
  accel_tensor_t *loss = NULL;
  double number = 0;
  CHECK(accel_module_call(loop->model, &input, 1, &output));
  CHECK(accel_mse_loss(output.as.tensor, loop->y, &loss));
  CHECK(accel_backward(loop->state, loss, NULL));
  CHECK(accel_optimizer_step(loop->optimizer));
  CHECK(accel_optimizer_zero_grad(loop->optimizer, 1));
  CHECK(accel_tensor_item(loss, &number));
  accel_tensor_release(loss);
  accel_value_dispose(&output);
}

int main(int argc, char **argv) {
  struct option_value options[] = {{"--steps", "10000"}};
  measure_begin(argc, argv, options, 1);
  const size_t steps = (size_t)measure_integer(&options[0]);
  double begun = seconds_of_thread();
  const struct loop loop = make_loop();
  step(&loop);
  double first = 1e3 * (seconds_of_thread() - begun);
  const double resident = measure_memory("VmRSS");
  double *const samples = measure_allocate((steps + 1) * sizeof *samples);
  double worst = 0;
  for (size_t i = 0; i < steps; i++) {
    begun = seconds_of_thread();
    step(&loop);
    samples[i] = 1e6 * (seconds_of_thread() - begun);
    if (samples[i] > worst) worst = samples[i];
  }
  char extra[96];
  snprintf(extra, sizeof extra, "\"worst\": %.1f, \"rss_grown_mb\": %.2f", worst, measure_memory("VmRSS") - resident);
  const struct figure figures[] = {{"embedded_first_step", "{}", "ms", 0, &first, 1, 0, NULL},
                                   {"embedded_step", "{}", "us", 0, samples, steps, 0, extra}};
  for (size_t i = 0; i < 2; i++) measure_report(loop.state, &figures[i]);
  free(samples);
  accel_tensor_release(loop.y);
  accel_tensor_release(loop.x);
  accel_optimizer_release(loop.optimizer);
  accel_module_release(loop.model);
  accel_state_release(loop.state);
  return 0;
}
