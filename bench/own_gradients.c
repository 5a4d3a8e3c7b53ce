/* SPDX-License-Identifier: Apache-2.0 */
/* Workload own-gradients: milliseconds from complete gradients of 25 M parameters to their update by AdamW, without
 * LibTorch's autograd. The gradients are in the library's memory (`in_place`), or in memory of the program, as are the
 * parameters
 * (`registered`, `sharded`). */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_LAYERS 24
#define SIZE 1024
#define WARMUP 2
#define N_PARAMETERS ((size_t)(2 * N_LAYERS))

static const char *variant;

static int is_in_place(void) { return strcmp(variant, "in_place") == 0; }

/* A weight and a bias in each layer. */
static int64_t columns_of(size_t index) { return index % 2 == 0 ? SIZE : 1; }

/* Memory for all of them, with values of which none is 0. */
static float *make_memory(void) {
  size_t count = 0;
  for (size_t i = 0; i < N_PARAMETERS; i++) count += (size_t)(SIZE * columns_of(i));
  float *const memory = measure_allocate(count * sizeof *memory);
  for (size_t i = 0; i < count; i++) memory[i] = (float)(i % 255 + 1) / 256;
  return memory;
}

static void name_of(size_t index, char name[32]) {
  snprintf(name, 32, "layer%02d.%s", (int)(index / 2), index % 2 == 0 ? "weight" : "bias");
}

static accel_tensor_t *tensor_over(float *memory, size_t index) {
  const int64_t shape[2] = {SIZE, columns_of(index)};
  accel_tensor_t *tensor = NULL;
  CHECK(accel_tensor_from_blob(memory, shape, index % 2 == 0 ? 2 : 1, NULL, ACCEL_DTYPE_FLOAT32,
                               &(accel_device_t){ACCEL_DEVICE_CPU, -1}, NULL, NULL, &tensor));
  return tensor;
}

static accel_value_t map_over(float *memory) {
  accel_value_t map = ACCEL_VALUE_INIT;
  CHECK(accel_value_map(&map));
  for (size_t i = 0; i < N_PARAMETERS; i++) {
    char name[32];
    name_of(i, name);
    accel_tensor_t *const tensor = tensor_over(memory, i);
    const accel_value_t item = accel_arg_tensor(tensor);
    CHECK(accel_value_set(&map, name, &item));
    accel_tensor_release(tensor);
    memory += SIZE * columns_of(i);
  }
  return map;
}

/* The library's own tensors. */
static accel_parameters_t *create_parameters(accel_state_t *state, double bucket_mib) {
  accel_module_t *module = NULL;
  accel_parameters_t *parameters = NULL;
  CHECK(accel_module_create("Network", &module));
  float *const values = make_memory(), *value = values;
  for (size_t i = 0; i < N_PARAMETERS; i++) {
    char name[32];
    const int64_t shape[2] = {SIZE, columns_of(i)};
    accel_tensor_t *tensor = NULL;
    name_of(i, name);
    *strchr(name, '.') = '_';
    CHECK(accel_tensor_from_data(value, shape, i % 2 == 0 ? 2 : 1, ACCEL_DTYPE_FLOAT32, &tensor));
    CHECK(accel_module_add_parameter(module, name, tensor, 1));
    accel_tensor_release(tensor);
    value += SIZE * columns_of(i);
  }
  free(values);
  accel_parameters_options_t created = ACCEL_PARAMETERS_OPTIONS_INIT;
  created.bucket_cap_mb = bucket_mib;
  CHECK(accel_parameters_create(state, module, &created, &parameters));
  accel_module_release(module);
  for (size_t i = 0; i < N_PARAMETERS; i++) {
    accel_tensor_t *gradient = NULL;
    void *data = NULL;
    CHECK(accel_parameters_gradient(parameters, i, &gradient));
    CHECK(accel_tensor_data(gradient, &data));
    for (int64_t j = 0; j < SIZE * columns_of(i); j++) ((float *)data)[j] = (float)(j % 255 + 1) / 256;
    accel_tensor_release(gradient);
  }
  return parameters;
}

static void step(accel_parameters_t *parameters, accel_optimizer_t *optimizer, const accel_value_t *gradients) {
  if (!is_in_place()) {
    CHECK(accel_parameters_step(parameters, optimizer, gradients, NULL, NULL));
    return;
  }
  for (size_t i = N_PARAMETERS; i-- > 0;) CHECK(accel_parameters_grad_ready(parameters, i, NULL));
  CHECK(accel_parameters_synchronize(parameters));
  CHECK(accel_optimizer_step(optimizer));
}

int main(int argc, char **argv) {
  enum { VARIANT, BUCKET, STEPS, THREADS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--variant", "registered"}, {"--bucket-mib", "25"}, {"--steps", "20"}, {"--threads", "1"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  variant = options[VARIANT].value;
  const size_t steps = (size_t)measure_integer(&options[STEPS]);

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&settings, &state));
  const double base_rss_mb = measure_memory("VmHWM");

  float *const weights = make_memory(), *const gradient_memory = make_memory();
  accel_value_t gradients = map_over(gradient_memory);
  accel_parameters_t *parameters = NULL;
  if (is_in_place()) {
    parameters = create_parameters(state, (double)measure_integer(&options[BUCKET]));
  } else {
    accel_value_t tensors = map_over(weights);
    accel_parameters_options_t registered = ACCEL_PARAMETERS_OPTIONS_INIT;
    accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
    fsdp.enabled = strcmp(variant, "sharded") == 0;
    fsdp.sharding_strategy = ACCEL_SHARDING_STRATEGY_SHARD_GRAD_OP;
    fsdp.auto_wrap_policy = ACCEL_AUTO_WRAP_POLICY_SIZE_BASED_WRAP;
    fsdp.min_num_params = SIZE;
    registered.fsdp = &fsdp;
    registered.bucket_cap_mb = (double)measure_integer(&options[BUCKET]);
    CHECK(accel_parameters_register(state, &tensors, &registered, &parameters));
    accel_value_dispose(&tensors);
  }
  accel_module_t *module = NULL;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  CHECK(accel_parameters_module(parameters, &module));
  CHECK(accel_optimizer_adamw(module, NULL, &plain));
  CHECK(accel_prepare_optimizer(state, plain, &optimizer));

  double *samples = measure_allocate(steps * sizeof *samples);
  measure_reset_peak();
  for (size_t i = 0; i < WARMUP; i++) step(parameters, optimizer, &gradients);
  for (size_t i = 0; i < steps; i++) {
    CHECK(accel_wait_for_everyone(state));
    const double start = measure_now();
    step(parameters, optimizer, &gradients);
    samples[i] = (measure_now() - start) * 1e3;
  }

  int64_t count = 0;
  CHECK(accel_module_num_parameters(module, &count));
  char params[160], extra[64];
  snprintf(params, sizeof params,
           "{\"variant\": \"%s\", \"parameters\": %lld, \"bucket_mib\": %s, \"procs\": %d, \"threads\": %s}", variant,
           (long long)count, options[BUCKET].value, accel_num_processes(state), options[THREADS].value);
  snprintf(extra, sizeof extra, "\"state_mb\": %.5g", (double)accel_optimizer_state_bytes(optimizer) / (1 << 20));
  const struct figure figure = {"own_gradients", params, "ms", 0, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  accel_value_dispose(&gradients);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(module);
  accel_parameters_release(parameters);
  accel_state_release(state);
  free(samples);
  free(weights);
  free(gradient_memory);
  return 0;
}
