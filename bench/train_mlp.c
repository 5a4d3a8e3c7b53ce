/* Workload train_mlp: milliseconds a step of a multi-layer perceptron. One process of the ranks; bench/run starts them.
 *
 * With `--independent 1` each process trains by itself, on as many rows as it would get, without any communication:
 * what training on several processes could reach at best. The processes still begin together.
 */
#include "measure.h"
#include "training.h"

#include <stdio.h>
#include <stdlib.h>

#define CLASSES 10
#define MAX_DEPTH 64
#define WARMUP 10

/* `depth` times a linear layer and a ReLU, then a linear layer to the classes. */
static accel_module_t *make_mlp(int64_t width, int64_t depth) {
  accel_module_t *layers[2 * MAX_DEPTH + 1], *model = NULL;
  const size_t n_layers = 2 * (size_t)depth + 1;
  for (size_t i = 0; i + 1 < n_layers; i += 2) {
    CHECK(accel_module_linear(width, width, 1, &layers[i]));
    CHECK(accel_module_activation("relu", &layers[i + 1]));
  }
  CHECK(accel_module_linear(width, CLASSES, 1, &layers[n_layers - 1]));
  CHECK(accel_module_sequential(layers, n_layers, &model));
  for (size_t i = 0; i < n_layers; i++) accel_module_release(layers[i]);
  return model;
}

static int64_t default_steps(int64_t width) { return width == 64 ? 200 : width == 512 ? 100 : width == 2048 ? 30 : 50; }

/* A state that knows of no other process. */
static accel_state_t *make_lone_state(void) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.process_index = 0;
  options.num_processes = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  return state;
}

int main(int argc, char **argv) {
  enum { WIDTH, DEPTH, BATCH, STEPS, INDEPENDENT, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--width", "512"}, {"--depth", "4"}, {"--batch", "64"}, {"--steps", "0"}, {"--independent", "0"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const int64_t width = measure_integer(&options[WIDTH]), depth = measure_integer(&options[DEPTH]);
  const int64_t batch = measure_integer(&options[BATCH]), given_steps = measure_integer(&options[STEPS]);
  const int independent = measure_integer(&options[INDEPENDENT]) != 0;
  const size_t steps = (size_t)(given_steps > 0 ? given_steps : default_steps(width));
  if (depth > MAX_DEPTH) {
    fprintf(stderr, "--depth %lld: expected at most %d\n", (long long)depth, MAX_DEPTH);
    return 2;
  }

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  accel_state_t *everyone = NULL;
  CHECK(accel_state_create(&settings, &everyone));
  accel_state_t *state = independent ? make_lone_state() : accel_state_retain(everyone);
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_module_t *model = make_mlp(width, depth);
  accel_tensor_t *inputs = NULL, *labels = NULL;
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int64_t shape[] = {batch * accel_num_processes(state) * (int64_t)(WARMUP + steps), width};
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, cpu, &inputs));
  CHECK(accel_tensor_randint(0, CLASSES, shape, 1, &labels));
  struct training training;
  training_prepare(&training, state, model, 1e-3, inputs, labels, batch);

  double *samples = measure_allocate(steps * sizeof *samples);
  CHECK(accel_wait_for_everyone(everyone));
  const double loss = training_run(&training, WARMUP, steps, samples);
  for (size_t i = 0; i < steps; i++) samples[i] *= 1e3;

  char params[160], extra[64];
  snprintf(params, sizeof params, "{\"width\": %lld, \"depth\": %lld, \"batch\": %lld, \"procs\": %d}",
           (long long)width, (long long)depth, (long long)batch, accel_num_processes(everyone));
  snprintf(extra, sizeof extra, "\"loss\": %.5g", loss);
  const struct figure figure = {
      independent ? "train_mlp_independent" : "train_mlp", params, "ms", 0, samples, steps, base_rss_mb, extra};
  measure_report(everyone, &figure);

  CHECK(accel_end_training(everyone));
  training_release(&training);
  accel_state_release(state);
  accel_state_release(everyone);
  free(samples);
  return 0;
}
