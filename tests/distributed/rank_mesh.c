/* SPDX-License-Identifier: Apache-2.0 */
/* Two replicas of a model of two tensor-parallel ranks: who reads, averages, counts and draws what. */
#include <math.h>
#include <string.h>

#include "rank_program.h"

#define ROWS 8

static const int64_t* integers(const accel_tensor_t* tensor, int64_t* count) {
  void* data = NULL;
  CHECK(accel_tensor_numel(tensor, count));
  CHECK(accel_tensor_data(tensor, &data));
  return data;
}

static double row_number(int64_t i, const void* context) {
  (void)context;
  return (double)i;
}

/* Whether all ranks of a group have this tensor. */
static void expect_same_in(accel_state_t* group, accel_tensor_t* tensor) {
  const accel_value_t own = accel_arg_tensor(tensor);
  accel_value_t all = ACCEL_VALUE_INIT;
  int64_t count = 0, each = 0;
  CHECK(accel_gather(group, &own, &all));
  const int64_t* const found = integers(all.as.tensor, &count);
  const int64_t* const here = integers(tensor, &each);
  EXPECT(count == each * accel_num_processes(group));
  for (int64_t i = 0; i < count; i++) EXPECT(found[i] == here[i % each]);
  accel_value_dispose(&all);
}

/* Each row comes to one replica, and to both of its ranks. */
static void check_loader(accel_state_t* state, accel_state_t* replicas, accel_state_t* parts, int32_t dispatches) {
  accel_tensor_t* const rows = make_tensor(ROWS, ACCEL_DTYPE_INT64, row_number, NULL);
  accel_dataset_t* dataset = NULL;
  accel_dataloader_t *loader = NULL, *prepared = NULL;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_dataloader_config_t config = ACCEL_DATALOADER_CONFIG_INIT;
  accel_value_t batch = ACCEL_VALUE_INIT, all = ACCEL_VALUE_INIT;
  int64_t seen[ROWS] = {0}, metrics = 0, batches = 0;
  options.batch_size = 2;
  options.shuffle = 1;
  config.dispatch_batches = dispatches;
  config.use_seedable_sampler = 0; /* the order is drawn */
  CHECK(accel_dataset_tensors(&rows, 1, &dataset));
  CHECK(accel_dataloader_create(dataset, &options, &loader));
  CHECK(accel_prepare_data_loader(state, loader, &config, &prepared));
  for (accel_status_t status; (status = accel_dataloader_next(prepared, &batch)) != ACCEL_ITER_END; batches++) {
    CHECK(status);
    accel_tensor_t* const own =
        batch.kind == ACCEL_VALUE_TENSOR ? batch.as.tensor : accel_value_at(&batch, 0)->as.tensor;
    const accel_value_t value = accel_arg_tensor(own);
    int64_t count = 0;
    expect_same_in(parts, own);
    CHECK(accel_gather(replicas, &value, &all));
    const int64_t* found = integers(all.as.tensor, &count);
    for (int64_t i = 0; i < count; i++) seen[found[i]]++;
    accel_value_dispose(&all);
    CHECK(accel_gather_for_metrics(state, &value, &all));
    integers(all.as.tensor, &count);
    metrics += count;
    accel_value_dispose(&all);
    accel_value_dispose(&batch);
  }
  EXPECT(batches == ROWS / 4);
  for (int64_t i = 0; i < ROWS; i++) EXPECT(seen[i] == 1);
  EXPECT(metrics == ROWS);
  accel_dataloader_release(prepared);
  accel_dataloader_release(loader);
  accel_dataset_release(dataset);
  accel_tensor_release(rows);
}

/* The gradient of weight * input is the input: averaged over the replicas alone. */
static void check_gradients(accel_state_t* state) {
  const int64_t shape[] = {1, 1};
  const int32_t rank = accel_process_index(state), part = rank % 2;
  accel_module_t *linear = NULL, *model = NULL;
  accel_optimizer_t *sgd = NULL, *optimizer = NULL;
  accel_scheduler_t *step = NULL, *scheduler = NULL;
  accel_tensor_t *input = NULL, *gradient = NULL;
  accel_value_t argument, output = ACCEL_VALUE_INIT, parameters = ACCEL_VALUE_INIT;
  accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
  accel_prepare_model_options_t by_program = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  double number = 0, rate = 0;
  options.lr = 1;
  CHECK(accel_module_linear(1, 1, 0, &linear));
  EXPECT(accel_prepare_model(state, linear, NULL, &model) == ACCEL_ERROR_UNSUPPORTED); /* nothing splits it */
  by_program.split_by_program = 1;
  CHECK(accel_prepare_model(state, linear, &by_program, &model));
  CHECK(accel_optimizer_sgd(linear, &options, &sgd));
  CHECK(accel_prepare_optimizer(state, sgd, &optimizer));
  CHECK(accel_scheduler_step_lr(optimizer, 1, 0.5, &step));
  CHECK(accel_prepare_scheduler(state, step, &scheduler));
  for (int32_t sums = 0; sums < 2; sums++) {
    CHECK(accel_optimizer_zero_grad(optimizer, 1));
    CHECK(accel_tensor_full(shape, 2, rank, ACCEL_DTYPE_FLOAT32, &kCpu, &input));
    argument = accel_arg_tensor(input);
    CHECK(accel_module_call(model, &argument, 1, &output));
    if (sums)
      CHECK(accel_backward_sum(state, output.as.tensor, 1 + rank / 2,
                               NULL)); /* 1 item in the first replica, 2 in the other */
    else
      CHECK(accel_backward(state, output.as.tensor, NULL));
    CHECK(accel_module_named_parameters(linear, &parameters));
    CHECK(accel_tensor_grad(accel_value_get(&parameters, "weight")->as.tensor, &gradient));
    CHECK(accel_tensor_item(gradient, &number));
    /* Ranks `part` and `part + 2` are the replicas of one part. */
    EXPECT(fabs(number - (2 * part + 2) / (sums ? 3.0 : 2.0)) < 1e-6);
    accel_tensor_release(gradient);
    accel_value_dispose(&parameters);
    accel_tensor_release(input);
    accel_value_dispose(&output);
  }
  /* A rank does not know the norm of the gradients of the other part. */
  EXPECT(accel_clip_grad_norm(state, model, 1, 2, &number) == ACCEL_ERROR_UNSUPPORTED);
  CHECK(accel_clip_grad_value(state, model, 1));
  /* One update of two replicas is two steps of the schedule. */
  CHECK(accel_optimizer_step(optimizer));
  CHECK(accel_scheduler_step(scheduler));
  CHECK(accel_optimizer_lr(optimizer, 0, &rate));
  EXPECT(rate == 0.25);
  EXPECT(accel_save_state(state, "/nowhere", NULL) == ACCEL_ERROR_UNSUPPORTED); /* the ranks have parts of a model */
  accel_scheduler_release(scheduler);
  accel_scheduler_release(step);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(sgd);
  accel_module_release(model);
  accel_module_release(linear);
}

/* Scores 0, 1, 2, 3, 4 of a row with the class 3, of which the first rank has three: the loss is log(sum(exp(score)))
 * - 3. */
static void check_split_classes(accel_state_t* parts) {
  const int64_t label = 3, shape[] = {1, 5};
  const int32_t begins = accel_process_index(parts) == 0 ? 0 : 3, count = begins == 0 ? 3 : 2;
  const int64_t own_shape[] = {1, count};
  const float scores[] = {0, 1, 2, 3, 4};
  accel_tensor_t *own = NULL, *split = NULL, *labels = NULL, *loss = NULL, *gradient = NULL, *whole = NULL;
  double number = 0, sum = 0;
  float* found = NULL;
  int64_t size = 0;
  for (int i = 0; i < 5; i++) sum += exp(scores[i]);
  CHECK(accel_tensor_from_data(scores + begins, own_shape, 2, ACCEL_DTYPE_FLOAT32, &own));
  CHECK(accel_tensor_from_data(&label, shape, 1, ACCEL_DTYPE_INT64, &labels));
  CHECK(accel_parallel_class_scores(parts, own, 5, &whole)); /* without a graph */
  CHECK(accel_tensor_numel(whole, &size));
  EXPECT(size == 5);
  CHECK(accel_tensor_set_requires_grad(own, 1));
  CHECK(accel_parallel_class_scores(parts, own, 5, &split));
  CHECK(accel_cross_entropy(split, labels, &loss));
  CHECK(accel_tensor_item(loss, &number));
  EXPECT(fabs(number - (log(sum) - 3)) < 1e-6);
  CHECK(accel_tensor_backward(loss, NULL));
  CHECK(accel_tensor_grad(own, &gradient));
  CHECK(accel_tensor_data(gradient, (void**)&found));
  for (int32_t i = 0; i < count; i++)
    EXPECT(fabs(found[i] - (exp(scores[begins + i]) / sum - (begins + i == label))) < 1e-6);
  accel_tensor_release(gradient);
  accel_tensor_release(loss);
  accel_tensor_release(split);
  accel_tensor_release(whole);
  accel_tensor_release(labels);
  accel_tensor_release(own);
}

/* A gradient overflows in one part of the model: no part makes the step. */
static void check_overflow(accel_state_t* job) {
  const int64_t shape[] = {1, 1};
  accel_state_t* state = NULL;
  accel_module_t *linear = NULL, *model = NULL;
  accel_optimizer_t *sgd = NULL, *optimizer = NULL;
  accel_tensor_t* input = NULL;
  accel_value_t argument, output = ACCEL_VALUE_INIT;
  accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
  accel_grad_scaler_options_t scaler = ACCEL_GRAD_SCALER_OPTIONS_INIT;
  accel_prepare_model_options_t by_program = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  options.lr = 1;
  scaler.enabled = 1;
  by_program.split_by_program = 1;
  CHECK(accel_state_share(job, NULL, &state));
  CHECK(accel_set_grad_scaler(state, &scaler));
  CHECK(accel_module_linear(1, 1, 0, &linear));
  CHECK(accel_prepare_model(state, linear, &by_program, &model));
  CHECK(accel_optimizer_sgd(linear, &options, &sgd));
  CHECK(accel_prepare_optimizer(state, sgd, &optimizer));
  CHECK(accel_tensor_full(shape, 2, accel_process_index(job) % 2 ? INFINITY : 1, ACCEL_DTYPE_FLOAT32, &kCpu, &input));
  argument = accel_arg_tensor(input);
  CHECK(accel_module_call(model, &argument, 1, &output));
  CHECK(accel_backward(state, output.as.tensor, NULL));
  EXPECT(accel_optimizer_step(optimizer) == ACCEL_STEP_SKIPPED);
  EXPECT(accel_optimizer_step_was_skipped(optimizer) == 1);
  accel_value_dispose(&output);
  accel_tensor_release(input);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(sgd);
  accel_module_release(model);
  accel_module_release(linear);
  accel_state_release(state);
}

static void check_random_streams(accel_state_t* state, accel_state_t* replicas, accel_state_t* parts) {
  accel_tensor_t* random = NULL;
  accel_value_t own, all = ACCEL_VALUE_INIT;
  int64_t count = 0;
  CHECK(accel_set_seed(state, 7, 1, 0));
  CHECK(accel_generator_state(NULL, &random));
  own = accel_arg_tensor(random);
  CHECK(accel_gather(parts, &own, &all));
  CHECK(accel_tensor_numel(all.as.tensor, &count));
  const char* bytes = NULL;
  CHECK(accel_tensor_data(all.as.tensor, (void**)&bytes));
  EXPECT(memcmp(bytes, bytes + count / 2, (size_t)count / 2) == 0);
  accel_value_dispose(&all);
  CHECK(accel_gather(replicas, &own, &all));
  CHECK(accel_tensor_data(all.as.tensor, (void**)&bytes));
  EXPECT(memcmp(bytes, bytes + count / 2, (size_t)count / 2) != 0);
  accel_value_dispose(&all);
  accel_tensor_release(random);
}

void run_mesh(accel_state_t* state, const char* argument) {
  (void)argument;
  const int32_t rank = accel_process_index(state);
  accel_mesh_t *mesh = NULL, *own = NULL;
  accel_state_t *replicas = NULL, *parts = NULL, *experts = NULL;
  const int64_t sizes[] = {2, 2};
  int64_t number = -1;
  CHECK(accel_state_mesh(state, &mesh));
  CHECK(accel_mesh_size(mesh, "replicate", &number));
  EXPECT(number == 2);
  CHECK(accel_mesh_coordinate(mesh, "replicate,shard", &number));
  EXPECT(number == rank / 2);
  CHECK(accel_mesh_group(mesh, "replicate,shard", &replicas));
  CHECK(accel_mesh_group(mesh, "tensor", &parts));
  EXPECT(accel_process_index(replicas) == rank / 2 && accel_process_index(parts) == rank % 2);
  check_loader(state, replicas, parts, 0);
  check_loader(state, replicas, parts, 1);
  check_gradients(state);
  check_split_classes(parts);
  check_overflow(state);
  check_random_streams(state, replicas, parts);
  CHECK(accel_mesh_create(state, "expert,replica", sizes, 2, &own));
  CHECK(accel_mesh_group(own, "expert", &experts));
  EXPECT(accel_num_processes(experts) == 2 && accel_process_index(experts) == rank / 2);
  accel_state_release(experts);
  accel_mesh_release(own);
  accel_state_release(parts);
  accel_state_release(replicas);
  accel_mesh_release(mesh);
}
