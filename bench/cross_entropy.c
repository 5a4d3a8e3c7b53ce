/* SPDX-License-Identifier: Apache-2.0 */
/* Workload cross-entropy: the last layer of a language model and its loss, forward and backward, by the operator that
 * never holds all class scores ("fused") or by LibTorch's two operators ("unfused"). Several ranks share the classes.
 */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARMUP 1

/* Calls an operator with one result. */
static accel_tensor_t *apply(const char *name, const char *overload, const accel_value_t *arguments, size_t n_arguments,
                             const char *const *names, const accel_value_t *named, size_t n_named) {
  const accel_op_t *op = NULL;
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_op_find(name, overload, &op));
  CHECK(accel_op_call_kw(op, arguments, n_arguments, names, named, n_named, &result, 1, &n_results));
  return result.as.tensor;
}

static accel_tensor_t *random_matrix(accel_device_t device, int64_t rows, int64_t columns) {
  const int64_t shape[] = {rows, columns};
  accel_tensor_t *matrix = NULL;
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, &device, &matrix));
  return matrix;
}

/* The same memory as a parameter that has no gradient yet. */
static accel_tensor_t *fresh_parameter(const accel_tensor_t *tensor) {
  accel_tensor_t *parameter = NULL;
  CHECK(accel_tensor_detach(tensor, &parameter));
  CHECK(accel_tensor_set_requires_grad(parameter, 1));
  return parameter;
}

static accel_tensor_t *fused_loss(accel_tensor_t *input, accel_tensor_t *weight, accel_tensor_t *target,
                                  int64_t chunk) {
  const accel_value_t arguments[] = {accel_arg_tensor(input), accel_arg_tensor(weight), accel_arg_tensor(target)};
  const char *const names[] = {"chunk_size"};
  const accel_value_t named[] = {accel_arg_int(chunk)};
  return apply("accel::linear_cross_entropy", "", arguments, 3, names, named, 1);
}

static accel_tensor_t *unfused_loss(accel_tensor_t *input, accel_module_t *head, accel_tensor_t *target) {
  const accel_value_t rows = accel_arg_tensor(input);
  accel_value_t scores = ACCEL_VALUE_INIT;
  CHECK(accel_module_call(head, &rows, 1, &scores));
  const accel_value_t arguments[] = {scores, accel_arg_tensor(target)};
  accel_tensor_t *loss = apply("aten::cross_entropy_loss", "", arguments, 2, NULL, NULL, 0);
  accel_value_dispose(&scores);
  return loss;
}

/* The last layer, whose rows several ranks share. */
static accel_module_t *make_head(accel_state_t *state, int64_t features, int64_t classes) {
  accel_module_t *linear = NULL, *head = NULL, *prepared = NULL;
  CHECK(accel_module_linear(features, classes, 0, &linear));
  CHECK(accel_module_to(linear, ACCEL_UNSET, accel_device(state)));
  CHECK(accel_module_sequential(&linear, 1, &head));
  accel_module_release(linear);
  if (accel_num_processes(state) > 1) {
    accel_tensor_parallel_options_t splitting = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
    accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
    splitting.plan = "0 colwise_gather_output";
    splitting.loss_parallel = 1;
    options.tensor_parallel = &splitting;
    CHECK(accel_prepare_model(state, head, &options, &prepared));
    accel_module_release(prepared);
  }
  return head;
}

int main(int argc, char **argv) {
  enum { DEVICE, VARIANT, PRECISION, ROWS, FEATURES, CLASSES, CHUNK, STEPS, THREADS, PROCS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--device", "cpu"},    {"--variant", "fused"}, {"--precision", "no"}, {"--rows", "4096"}, {"--features", "512"},
      {"--classes", "50257"}, {"--chunk", "0"},       {"--steps", "5"},      {"--threads", "2"}, {"--procs", "1"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const size_t steps = (size_t)measure_integer(&options[STEPS]);
  const int64_t rows = measure_integer(&options[ROWS]), features = measure_integer(&options[FEATURES]);
  const int64_t classes = measure_integer(&options[CLASSES]), chunk = measure_integer(&options[CHUNK]);
  const int is_fused = strcmp(options[VARIANT].value, "fused") == 0;

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.mixed_precision = strcmp(options[PRECISION].value, "bf16") == 0 ? ACCEL_PRECISION_BF16 : ACCEL_PRECISION_NO;
  settings.tensor_parallel_size = (int32_t)measure_integer(&options[PROCS]);
  accel_state_t *state = measure_state(settings, options[DEVICE].value);
  CHECK(accel_set_seed(state, 0, 0, 0));
  const accel_device_t device = *accel_device(state);
  accel_tensor_t *hidden = random_matrix(device, rows, features);
  accel_module_t *head = make_head(state, features, classes);
  accel_value_t parameters = ACCEL_VALUE_INIT;
  CHECK(accel_module_named_parameters(head, &parameters));
  accel_tensor_t *const weight = accel_value_get(&parameters, "0.weight")->as.tensor;
  accel_tensor_t *drawn = NULL, *target = NULL;
  CHECK(accel_tensor_randint(0, classes, &rows, 1, &drawn));
  CHECK(accel_tensor_to(drawn, ACCEL_UNSET, &device, 0, &target));
  accel_tensor_release(drawn);

  double *samples = measure_allocate(steps * sizeof *samples);
  double last_loss = 0;
  measure_reset_peak();
  const double base_rss_mb = measure_memory("VmHWM");
  for (size_t step = 0; step < WARMUP + steps; step++) {
    accel_tensor_t *input = fresh_parameter(hidden);
    CHECK(accel_tensor_set_grad(weight, NULL));
    accel_scope_t *precision = NULL;
    const double start = measure_now();
    CHECK(accel_autocast_begin(state, NULL, &precision));
    accel_tensor_t *loss = is_fused ? fused_loss(input, weight, target, chunk) : unfused_loss(input, head, target);
    CHECK(accel_scope_end(precision));
    CHECK(accel_tensor_backward(loss, NULL));
    measure_wait(state);
    if (step >= WARMUP) samples[step - WARMUP] = (measure_now() - start) * 1e3;
    CHECK(accel_tensor_item(loss, &last_loss));
    accel_tensor_release(loss);
    accel_tensor_release(input);
  }

  char params[200], procs[32] = "", extra[160];
  if (accel_num_processes(state) > 1) snprintf(procs, sizeof procs, ", \"procs\": %d", (int)accel_num_processes(state));
  snprintf(params, sizeof params,
           "{\"variant\": \"%s\", \"precision\": \"%s\", \"rows\": %lld, \"features\": %lld, \"classes\": %lld, "
           "\"threads\": %s%s}",
           options[VARIANT].value, options[PRECISION].value, (long long)rows, (long long)features, (long long)classes,
           options[THREADS].value, procs);
  snprintf(extra, sizeof extra, "\"added_peak_mb\": %.5g, \"loss\": %.9g", measure_memory("VmHWM") - base_rss_mb,
           last_loss);
  const struct figure figure = {"cross_entropy", params, "ms", 0, samples, steps, base_rss_mb, extra};
  measure_report(state, &figure);

  accel_tensor_release(target);
  accel_value_dispose(&parameters);
  accel_module_release(head);
  accel_tensor_release(hidden);
  accel_state_release(state);
  free(samples);
  return 0;
}
