/* SPDX-License-Identifier: Apache-2.0 */
/* What several ranks see of the hooks that exchange gradients, of local SGD, and of the steps of a scheduler. */
#include <math.h>
#include <string.h>

#include "rank_program.h"

#define WIDTH 12

static accel_module_t* make_model(accel_state_t* state) {
  accel_module_t* model = NULL;
  CHECK(accel_set_seed(state, 5, 0, 0));
  CHECK(accel_module_linear(WIDTH, WIDTH, 1, &model));
  return model;
}

/* The parameters, or their gradients, as one list. */
static void copy_parameters(accel_module_t* model, int32_t gradients, accel_value_t* out) {
  accel_value_t parameters = ACCEL_VALUE_INIT;
  CHECK(accel_module_named_parameters(model, &parameters));
  CHECK(accel_value_list(NULL, 0, out));
  for (size_t i = 0; i < accel_value_count(&parameters); i++) {
    accel_tensor_t *tensor = accel_value_at(&parameters, i)->as.tensor, *gradient = NULL, *copy = NULL;
    if (gradients) {
      CHECK(accel_tensor_grad(tensor, &gradient));
      EXPECT(gradient != NULL);
      tensor = gradient;
    }
    CHECK(accel_tensor_clone(tensor, &copy));
    const accel_value_t item = accel_arg_tensor(copy);
    CHECK(accel_value_push(out, &item));
    accel_tensor_release(copy);
    accel_tensor_release(gradient);
  }
  accel_value_dispose(&parameters);
}

/* One backward with a batch of this rank's own; the status of accel_backward(). */
static accel_status_t back_propagate(accel_state_t* state, accel_module_t* model, int64_t step) {
  const int64_t shape[2] = {2, WIDTH}, labels[2] = {step % WIDTH, accel_process_index(state)};
  const int64_t label_shape[1] = {2};
  float x[2 * WIDTH];
  accel_tensor_t *inputs = NULL, *targets = NULL, *loss = NULL;
  accel_value_t logits = ACCEL_VALUE_INIT;
  for (int i = 0; i < 2 * WIDTH; i++) x[i] = (float)sin((double)(accel_process_index(state) * 31 + step * 7 + i));
  CHECK(accel_tensor_from_data(x, shape, 2, ACCEL_DTYPE_FLOAT32, &inputs));
  CHECK(accel_tensor_from_data(labels, label_shape, 1, ACCEL_DTYPE_INT64, &targets));
  const accel_value_t argument = accel_arg_tensor(inputs);
  CHECK(accel_module_call(model, &argument, 1, &logits));
  CHECK(accel_cross_entropy(logits.as.tensor, targets, &loss));
  const accel_status_t status = accel_backward(state, loss, NULL);
  accel_tensor_release(loss);
  accel_value_dispose(&logits);
  accel_tensor_release(targets);
  accel_tensor_release(inputs);
  return status;
}

/* How far two lists of tensors are apart. */
static double distance(const accel_value_t* a, const accel_value_t* b) {
  double largest = 0;
  for (size_t i = 0; i < accel_value_count(a); i++) {
    void *x = NULL, *y = NULL;
    int64_t count = 0;
    CHECK(accel_tensor_numel(accel_value_at(a, i)->as.tensor, &count));
    CHECK(accel_tensor_data(accel_value_at(a, i)->as.tensor, &x));
    CHECK(accel_tensor_data(accel_value_at(b, i)->as.tensor, &y));
    for (int64_t k = 0; k < count; k++) largest = fmax(largest, fabs((double)((float*)x)[k] - (double)((float*)y)[k]));
  }
  return largest;
}

/* How far this rank's parameters are from their mean over the ranks. */
static double distance_from_mean(accel_state_t* state, accel_module_t* model) {
  accel_value_t own = ACCEL_VALUE_INIT, mean = ACCEL_VALUE_INIT;
  copy_parameters(model, 0, &own);
  CHECK(accel_reduce(state, &own, ACCEL_REDUCE_MEAN, 1, &mean));
  const double result = distance(&own, &mean);
  accel_value_dispose(&mean);
  accel_value_dispose(&own);
  return result;
}

typedef struct hook_record {
  accel_state_t* state;
  int32_t fails, calls, last, destroyed;
} hook_record_t;

static accel_status_t average(accel_tensor_t* buffer, int64_t bucket, int32_t is_last, void* user_data) {
  hook_record_t* const record = user_data;
  accel_value_t mean = ACCEL_VALUE_INIT;
  const accel_value_t argument = accel_arg_tensor(buffer);
  const accel_op_t* copy = NULL;
  EXPECT(bucket >= 0);
  record->calls++;
  record->last += is_last;
  if (record->fails) {
    accel_error_set(ACCEL_ERROR_USER, "the hook was told to fail");
    return ACCEL_ERROR_USER;
  }
  CHECK(accel_reduce(record->state, &argument, ACCEL_REDUCE_MEAN, 1, &mean));
  CHECK(accel_op_find("aten::copy_", "", &copy));
  const accel_value_t arguments[2] = {accel_arg_tensor(buffer), mean};
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_op_call(copy, arguments, 2, &result, 1, &n_results));
  accel_value_dispose(&result);
  accel_value_dispose(&mean);
  return ACCEL_OK;
}

static void count_destroy(void* user_data) { ((hook_record_t*)user_data)->destroyed++; }

/* The gradients of step 0 to 3, with the options. */
static void exchange(accel_state_t* state, const accel_ddp_options_t* options, hook_record_t* record,
                     accel_value_t* out) {
  accel_module_t *const model = make_model(state), *prepared = NULL;
  accel_prepare_model_options_t preparation = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  preparation.ddp = options;
  CHECK(accel_prepare_model(state, model, &preparation, &prepared));
  if (record != NULL) CHECK(accel_register_comm_hook(state, prepared, average, record, count_destroy));
  for (int64_t step = 0; step < 4; step++) CHECK(back_propagate(state, prepared, step)); /* gradients add up */
  copy_parameters(model, 1, out);
  if (record != NULL) {
    record->fails = 1;
    EXPECT(back_propagate(state, prepared, 4) == ACCEL_ERROR_USER);
    EXPECT(strstr(accel_last_error(), "the hook was told to fail") != NULL);
    record->fails = 0;
    CHECK(back_propagate(state, prepared, 5));
  }
  accel_module_release(prepared);
  accel_module_release(model);
  CHECK(accel_free_memory(state));
}

static void check_hooks(accel_state_t* state) {
  accel_value_t plain = ACCEL_VALUE_INIT, other = ACCEL_VALUE_INIT;
  accel_ddp_options_t options = ACCEL_DDP_OPTIONS_INIT;
  accel_power_sgd_options_t power = ACCEL_POWER_SGD_OPTIONS_INIT;
  hook_record_t record = {state, 0, 0, 0, 0};
  exchange(state, NULL, NULL, &plain);

  exchange(state, NULL, &record, &other);
  EXPECT(distance(&plain, &other) <= 1e-6);
  EXPECT(record.calls >= 6 && record.last >= 5 && record.destroyed == 1);
  accel_value_dispose(&other);

  for (options.comm_hook = ACCEL_DDP_COMM_HOOK_FP16; options.comm_hook <= ACCEL_DDP_COMM_HOOK_BF16;
       options.comm_hook++) {
    exchange(state, &options, NULL, &other);
    const double rounding = distance(&plain, &other);
    EXPECT(rounding > 0 && rounding < 0.02);
    accel_value_dispose(&other);
  }
  power.start_power_sgd_iter = 2;
  power.matrix_approximation_rank = 2;
  power.min_compression_rate = 1;
  options.comm_state_option = &power;
  options.comm_wrapper = ACCEL_DDP_COMM_HOOK_BF16;
  for (options.comm_hook = ACCEL_DDP_COMM_HOOK_POWER_SGD; options.comm_hook <= ACCEL_DDP_COMM_HOOK_BATCHED_POWER_SGD;
       options.comm_hook++) {
    accel_value_t mean = ACCEL_VALUE_INIT;
    exchange(state, &options, NULL, &other);
    CHECK(accel_reduce(state, &other, ACCEL_REDUCE_MEAN, 1, &mean));
    EXPECT(distance(&other, &mean) <= 1e-6); /* all ranks have the same */
    EXPECT(distance(&plain, &other) < 1);
    accel_value_dispose(&mean);
    accel_value_dispose(&other);
  }
  options.comm_hook = ACCEL_DDP_COMM_HOOK_POWER_SGD;
  power.start_power_sgd_iter = 1;
  accel_module_t *const model = make_model(state), *prepared = NULL;
  accel_prepare_model_options_t preparation = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  preparation.ddp = &options;
  EXPECT(accel_prepare_model(state, model, &preparation, &prepared) == ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT(strstr(accel_last_error(), "start_power_sgd_iter is 1") != NULL);
  accel_module_release(model);
  accel_value_dispose(&plain);
}

static void check_local_sgd(accel_state_t* state) {
  accel_module_t *const model = make_model(state), *prepared = NULL;
  accel_optimizer_t *sgd = NULL, *optimizer = NULL;
  accel_scope_t* scope = NULL;
  accel_local_sgd_options_t options = ACCEL_LOCAL_SGD_OPTIONS_INIT;
  accel_sgd_options_t rate = ACCEL_SGD_OPTIONS_INIT;
  accel_value_t saved = ACCEL_VALUE_INIT;
  rate.lr = 0.1;
  CHECK(accel_prepare_model(state, model, NULL, &prepared));
  CHECK(accel_optimizer_sgd(model, &rate, &sgd));
  CHECK(accel_prepare_optimizer(state, sgd, &optimizer));
  for (int diloco = 0; diloco < 2; diloco++) {
    if (diloco) options.outer_lr = 0.7;
    CHECK(accel_local_sgd_begin(state, prepared, 3, &options, &scope));
    for (int64_t step = 0; step < 7; step++) {
      int32_t averaged = -1;
      CHECK(back_propagate(state, prepared, step));
      CHECK(accel_optimizer_step(optimizer));
      CHECK(accel_optimizer_zero_grad(optimizer, 1));
      CHECK(accel_local_sgd_step(scope, &averaged));
      EXPECT(averaged == (step % 3 == 2));
      EXPECT((distance_from_mean(state, model) <= 1e-6) == (averaged == 1));
    }
    CHECK(accel_local_sgd_state_dict(scope, &saved));
    EXPECT(accel_value_get(&saved, "num_steps")->as.integer == 7);
    EXPECT((accel_value_get(&saved, "outer") != NULL) == diloco);
    CHECK(accel_local_sgd_load_state_dict(scope, &saved));
    accel_value_dispose(&saved);
    CHECK(accel_scope_end(scope));
    EXPECT(distance_from_mean(state, model) <= 1e-6);
  }
  options.enabled = 0;
  CHECK(accel_local_sgd_begin(state, prepared, 3, &options, &scope));
  CHECK(back_propagate(state, prepared, 0));
  CHECK(accel_optimizer_step(optimizer));
  EXPECT(distance_from_mean(state, model) <= 1e-6); /* gradients were exchanged */
  CHECK(accel_scope_end(scope));
  accel_optimizer_release(optimizer);
  accel_optimizer_release(sgd);
  accel_module_release(prepared);
  accel_module_release(model);
  CHECK(accel_free_memory(state));
}

/* A schedule for the batches of one process goes as many steps in an update as there are ranks. */
static void check_scheduler_steps(accel_state_t* state) {
  accel_module_t* const model = make_model(state);
  accel_optimizer_t *sgd = NULL, *optimizer = NULL;
  accel_scheduler_t *halving = NULL, *scheduler = NULL;
  accel_tensor_t* curve = NULL;
  void* rates = NULL;
  double before = 0, after = 0;
  CHECK(accel_optimizer_sgd(model, NULL, &sgd));
  CHECK(accel_prepare_optimizer(state, sgd, &optimizer));
  CHECK(accel_scheduler_exponential(sgd, 0.5, &halving));
  CHECK(accel_prepare_scheduler(state, halving, &scheduler));
  CHECK(accel_optimizer_lr(sgd, 0, &before));
  CHECK(accel_scheduler_curve(scheduler, 2, &curve));
  CHECK(accel_tensor_data(curve, &rates));
  CHECK(accel_scheduler_step(scheduler));
  CHECK(accel_optimizer_lr(sgd, 0, &after));
  EXPECT(after == ldexp(before, -accel_num_processes(state)));
  EXPECT(((double*)rates)[0] == before && ((double*)rates)[1] == after);
  accel_tensor_release(curve);
  accel_scheduler_release(scheduler);
  accel_scheduler_release(halving);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(sgd);
  accel_module_release(model);
  CHECK(accel_free_memory(state));
}

void run_hooks(accel_state_t* state, const char* argument) {
  (void)argument;
  check_hooks(state);
  check_local_sgd(state);
  check_scheduler_steps(state);
}
