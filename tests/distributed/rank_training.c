/* SPDX-License-Identifier: Apache-2.0 */
/* Training on several ranks against training in one process, and across a checkpoint. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <string.h>

#include "rank_program.h"

#define ROWS 6 /* of one rank's batch */
#define FEATURES 9
#define HIDDEN 17
#define CLASSES 5

static accel_module_t* make_model(accel_state_t* state, int64_t seed) {
  accel_module_t *layers[3] = {NULL, NULL, NULL}, *model = NULL;
  CHECK(accel_set_seed(state, seed, 0, 0));
  CHECK(accel_module_linear(FEATURES, HIDDEN, 1, &layers[0]));
  CHECK(accel_module_activation("tanh", &layers[1]));
  CHECK(accel_module_linear(HIDDEN, CLASSES, 1, &layers[2]));
  CHECK(accel_module_sequential(layers, 3, &model));
  for (size_t i = 0; i < 3; i++) accel_module_release(layers[i]);
  return model;
}

/* Rows [first, first + rows) of the data of step `step`. */
static void make_batch(int64_t step, int64_t first, int64_t rows, accel_tensor_t** inputs, accel_tensor_t** labels) {
  const int64_t shape[2] = {rows, FEATURES};
  float* const x = malloc((size_t)(rows * FEATURES) * sizeof *x);
  int64_t* const y = malloc((size_t)rows * sizeof *y);
  EXPECT(x != NULL && y != NULL);
  for (int64_t r = 0; r < rows; r++) {
    y[r] = (step + (first + r) * 3) % CLASSES;
    for (int64_t f = 0; f < FEATURES; f++)
      x[r * FEATURES + f] = (float)sin((double)(step * 131 + (first + r) * 17 + f * 3 + 1));
  }
  CHECK(accel_tensor_from_data(x, shape, 2, ACCEL_DTYPE_FLOAT32, inputs));
  CHECK(accel_tensor_from_data(y, shape, 1, ACCEL_DTYPE_INT64, labels));
  free(x);
  free(y);
}

static accel_tensor_t* loss_of(accel_module_t* model, int64_t step, int64_t first, int64_t rows) {
  accel_tensor_t *inputs = NULL, *labels = NULL, *loss = NULL;
  accel_value_t logits = ACCEL_VALUE_INIT;
  make_batch(step, first, rows, &inputs, &labels);
  const accel_value_t argument = accel_arg_tensor(inputs);
  CHECK(accel_module_call(model, &argument, 1, &logits));
  CHECK(accel_cross_entropy(logits.as.tensor, labels, &loss));
  accel_value_dispose(&logits);
  accel_tensor_release(labels);
  accel_tensor_release(inputs);
  return loss;
}

static double largest_difference(accel_tensor_t* a, accel_tensor_t* b) {
  void *x = NULL, *y = NULL;
  int64_t count = 0, other = 0;
  CHECK(accel_tensor_numel(a, &count));
  CHECK(accel_tensor_numel(b, &other));
  EXPECT(count == other && count > 0);
  CHECK(accel_tensor_data(a, &x));
  CHECK(accel_tensor_data(b, &y));
  double largest = 0;
  for (int64_t i = 0; i < count; i++)
    largest = fmax(largest, fabs((double)((const float*)x)[i] - (double)((const float*)y)[i]));
  return largest;
}

/* The gradients of all ranks' batches, averaged, are those of the joined batch. The joined loss is the mean of the
 * ranks' because their batches are equally long. */
void run_ddp(accel_state_t* state, const char* argument) {
  (void)argument;
  const int32_t ranks = accel_num_processes(state), rank = accel_process_index(state);
  accel_module_t *const alone = make_model(state, 7), *const model = make_model(state, 7 + rank);
  accel_module_t* prepared = NULL;
  CHECK(accel_prepare_model(state, model, NULL, &prepared)); /* rank 0's weights, which are those of `alone` */
  for (int64_t step = 0; step < 3; step++) {
    accel_tensor_t* const joined = loss_of(alone, step, 0, ROWS * ranks);
    CHECK(accel_tensor_backward(joined, NULL));
    accel_tensor_t* const own = loss_of(prepared, step, (int64_t)ROWS * rank, ROWS);
    CHECK(accel_backward(state, own, NULL));
    accel_value_t expected = ACCEL_VALUE_INIT, parameters = ACCEL_VALUE_INIT;
    CHECK(accel_module_named_parameters(alone, &expected));
    CHECK(accel_module_named_parameters(model, &parameters));
    EXPECT(accel_value_count(&parameters) == 4 && accel_value_count(&expected) == 4);
    for (size_t i = 0; i < 4; i++) {
      accel_tensor_t *a = accel_value_at(&expected, i)->as.tensor, *b = accel_value_at(&parameters, i)->as.tensor;
      accel_tensor_t *gradient = NULL, *averaged = NULL;
      EXPECT(strcmp(accel_value_key(&expected, i), accel_value_key(&parameters, i)) == 0);
      EXPECT(same_tensors(a, b));
      CHECK(accel_tensor_grad(a, &gradient));
      CHECK(accel_tensor_grad(b, &averaged));
      EXPECT(gradient != NULL && averaged != NULL);
      EXPECT(largest_difference(gradient, averaged) <= 1e-6 * (double)(step + 1)); /* they add up: nobody clears them */
      accel_tensor_release(averaged);
      accel_tensor_release(gradient);
    }
    accel_value_dispose(&parameters);
    accel_value_dispose(&expected);
    accel_tensor_release(own);
    accel_tensor_release(joined);
  }
  accel_module_release(prepared);
  accel_module_release(model);
  accel_module_release(alone);
  CHECK(accel_free_memory(state));
}

static void train(accel_state_t* state, accel_module_t* model, accel_optimizer_t* optimizer,
                  accel_scheduler_t* scheduler, int64_t begin, int64_t end) {
  for (int64_t step = begin; step < end; step++) {
    accel_tensor_t* const loss = loss_of(model, step, (int64_t)ROWS * accel_process_index(state), ROWS);
    CHECK(accel_backward(state, loss, NULL));
    CHECK(accel_optimizer_step(optimizer));
    CHECK(accel_scheduler_step(scheduler));
    CHECK(accel_optimizer_zero_grad(optimizer, 1));
    accel_tensor_release(loss);
  }
}

/* Copies of the parameters and of the next random numbers. */
static void observe(accel_module_t* model, accel_value_t* out) {
  const int64_t count = 10;
  accel_tensor_t* random = NULL;
  accel_value_t parameters = ACCEL_VALUE_INIT;
  CHECK(accel_module_named_parameters(model, &parameters));
  CHECK(accel_value_map(out));
  for (size_t i = 0; i < accel_value_count(&parameters); i++) {
    accel_tensor_t* copy = NULL;
    CHECK(accel_tensor_clone(accel_value_at(&parameters, i)->as.tensor, &copy));
    const accel_value_t item = accel_arg_tensor(copy);
    CHECK(accel_value_set(out, accel_value_key(&parameters, i), &item));
    accel_tensor_release(copy);
  }
  accel_value_dispose(&parameters);
  CHECK(accel_tensor_randn(&count, 1, ACCEL_DTYPE_FLOAT32, &kCpu, &random));
  const accel_value_t item = accel_arg_tensor(random);
  CHECK(accel_value_set(out, "random numbers", &item));
  accel_tensor_release(random);
}

static int64_t iteration_of(accel_state_t* state) {
  accel_value_t project = ACCEL_VALUE_INIT;
  CHECK(accel_project(state, &project));
  const int64_t iteration = accel_value_get(&project, "iteration")->as.integer;
  accel_value_dispose(&project);
  return iteration;
}

/* The ranks agree on names that are chosen for them, and on what goes wrong with these. */
static void save_in_a_project(accel_state_t* state, const char* argument) {
  char path[4096];
  accel_project_options_t project = ACCEL_PROJECT_OPTIONS_INIT;
  snprintf(path, sizeof path, "%s/run", argument);
  project.project_dir = path;
  project.automatic_checkpoint_naming = 1;
  project.total_limit = 2;
  project.iteration = 0;
  CHECK(accel_set_project(state, &project));
  EXPECT(accel_load_state(state, NULL, NULL) == ACCEL_ERROR_NOT_FOUND);
  for (int i = 0; i < 3; i++) CHECK(accel_save_state(state, NULL, NULL));
  EXPECT(iteration_of(state) == 3);
  project.iteration = 2;
  CHECK(accel_set_project(state, &project));
  EXPECT(accel_save_state(state, NULL, NULL) == ACCEL_ERROR_ALREADY_EXISTS);
  CHECK(accel_load_state(state, NULL, NULL));
  EXPECT(iteration_of(state) == 3);
  snprintf(path, sizeof path, "%s/run/checkpoints/checkpoint_0", argument);
  EXPECT(accel_load_state(state, path, NULL) == ACCEL_ERROR_NOT_FOUND); /* it was removed */
}

/* Going on from a checkpoint gives the same bits as going on without. The argument is a folder for it. */
void run_checkpoint(accel_state_t* state, const char* argument) {
  EXPECT(argument != NULL);
  char path[4096];
  accel_module_t* const model = make_model(state, 3);
  accel_module_t* prepared = NULL;
  accel_optimizer_t *adamw = NULL, *optimizer = NULL;
  accel_scheduler_t *linear = NULL, *scheduler = NULL;
  accel_value_t went_on = ACCEL_VALUE_INIT, came_back = ACCEL_VALUE_INIT;
  snprintf(path, sizeof path, "%s/state", argument);
  CHECK(accel_prepare_model(state, model, NULL, &prepared));
  CHECK(accel_optimizer_adamw(model, NULL, &adamw));
  CHECK(accel_prepare_optimizer(state, adamw, &optimizer));
  CHECK(accel_scheduler_linear_warmup(adamw, 2, 50, &linear));
  CHECK(accel_prepare_scheduler(state, linear, &scheduler));
  CHECK(accel_set_seed(state, 11, 1, 0));

  EXPECT(accel_load_state(state, path, NULL) == ACCEL_ERROR_NOT_FOUND);
  train(state, prepared, optimizer, scheduler, 0, 3);
  CHECK(accel_save_state(state, path, NULL));
  CHECK(accel_save_state(state, path, NULL)); /* over the older one */
  train(state, prepared, optimizer, scheduler, 3, 6);
  observe(model, &went_on);
  CHECK(accel_load_state(state, path, NULL));
  train(state, prepared, optimizer, scheduler, 3, 6);
  observe(model, &came_back);
  int32_t equal = 0;
  CHECK(accel_value_equal(&went_on, &came_back, &equal));
  EXPECT(equal == 1);
  save_in_a_project(state, argument);

  accel_value_dispose(&came_back);
  accel_value_dispose(&went_on);
  accel_scheduler_release(scheduler);
  accel_scheduler_release(linear);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(adamw);
  accel_module_release(prepared);
  accel_module_release(model);
  CHECK(accel_free_memory(state));
}

/* Rank 0's parameters, and what every rank has of them. */
static void expect_equal_models(accel_state_t* state, accel_module_t* model) {
  accel_value_t own = ACCEL_VALUE_INIT, of_main = ACCEL_VALUE_INIT;
  int32_t equal = 0;
  observe(model, &own);
  observe(model, &of_main);
  CHECK(accel_broadcast(state, &of_main, 0));
  /* The random numbers of observe() are each rank's own. */
  CHECK(accel_value_set(&own, "random numbers", &(accel_value_t)ACCEL_VALUE_INIT));
  CHECK(accel_value_set(&of_main, "random numbers", &(accel_value_t)ACCEL_VALUE_INIT));
  CHECK(accel_value_equal(&own, &of_main, &equal));
  EXPECT(equal == 1);
  accel_value_dispose(&of_main);
  accel_value_dispose(&own);
}

struct search {
  accel_state_t* state;
  int64_t tried;
};

/* The last rank has room for 50 rows only; the others wait for it in a collective. */
static accel_status_t try_batch_size(int64_t batch_size, void* user_data) {
  struct search* const search = user_data;
  accel_state_t* const state = search->state;
  accel_value_t gathered = ACCEL_VALUE_INIT;
  accel_tensor_t* rows = NULL;
  search->tried++;
  if (accel_is_last_process(state) && batch_size > 50) {
    const int64_t too_many = (int64_t)1 << 52;
    return accel_tensor_empty(&too_many, 1, ACCEL_DTYPE_FLOAT32, &kCpu, &rows);
  }
  accel_status_t status = accel_tensor_full(&batch_size, 1, 1, ACCEL_DTYPE_FLOAT32, &kCpu, &rows);
  if (status != ACCEL_OK) return status;
  const accel_value_t value = accel_arg_tensor(rows);
  status = accel_gather(state, &value, &gathered);
  accel_value_dispose(&gathered);
  accel_tensor_release(rows);
  return status;
}

/* Ranks with different numbers of batches end with the same model, and stay alike afterwards; ranks with different
 * memory agree on a batch size. */
void run_uneven(accel_state_t* state, const char* argument) {
  (void)argument;
  accel_module_t* const model = make_model(state, 3);
  accel_module_t* prepared = NULL;
  accel_optimizer_t *adamw = NULL, *optimizer = NULL;
  accel_scheduler_t *linear = NULL, *scheduler = NULL;
  accel_scope_t* scope = NULL;
  struct search search = {state, 0};
  int64_t batch_size = 0;
  CHECK(accel_prepare_model(state, model, NULL, &prepared));
  CHECK(accel_optimizer_adamw(model, NULL, &adamw));
  CHECK(accel_prepare_optimizer(state, adamw, &optimizer));
  CHECK(accel_scheduler_linear_warmup(adamw, 2, 50, &linear));
  CHECK(accel_prepare_scheduler(state, linear, &scheduler));

  for (int epoch = 0; epoch < 2; epoch++) {
    CHECK(accel_join_uneven_inputs_begin(state, &prepared, 1, 0, &scope));
    train(state, prepared, optimizer, scheduler, 0, epoch == 0 ? accel_process_index(state) : 1);
    CHECK(accel_scope_end(scope));
    expect_equal_models(state, model);
  }
  train(state, prepared, optimizer, scheduler, 7, 9); /* the states of the optimizers are alike too */
  expect_equal_models(state, model);

  CHECK(accel_find_executable_batch_size(state, try_batch_size, NULL, &search, NULL, 64, &batch_size));
  EXPECT(batch_size == 45); /* 64, 57, 51, 45 */
  EXPECT(search.tried == 4);

  accel_scheduler_release(scheduler);
  accel_scheduler_release(linear);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(adamw);
  accel_module_release(prepared);
  accel_module_release(model);
  CHECK(accel_free_memory(state));
}
