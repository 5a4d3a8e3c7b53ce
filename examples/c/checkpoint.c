/* A run that is saved, thrown away and resumed continues as if nothing had happened, bit for bit:
 *
 *     accel launch --num-processes 2 -- ./checkpoint FOLDER
 */
#include "digits.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 6, SAVED_AFTER = 3, SAMPLES = 96, BATCH = 8, HIDDEN = 32, LAYERS = 4 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

struct run {
  accel_module_t *model;
  accel_optimizer_t *optimizer;
  accel_scheduler_t *scheduler;
  accel_dataloader_t *loader;
};

static accel_module_t *new_model(void) {
  accel_module_t *layers[LAYERS] = {NULL}, *model = NULL;
  CHECK(accel_module_linear(SEGMENTS, HIDDEN, 1, &layers[0]));
  CHECK(accel_module_activation("relu", &layers[1]));
  CHECK(accel_module_dropout(0.1, &layers[2]));
  CHECK(accel_module_linear(HIDDEN, DIGITS, 1, &layers[3]));
  CHECK(accel_module_sequential(layers, LAYERS, &model));
  for (int i = 0; i < LAYERS; i++) accel_module_release(layers[i]);
  return model;
}

static accel_dataloader_t *new_loader(void) {
  float features[SAMPLES * SEGMENTS];
  int64_t labels[SAMPLES];
  digits_fill(1, SAMPLES, features, labels);
  const int64_t shape[] = {SAMPLES, SEGMENTS};
  accel_tensor_t *tensors[2] = {NULL, NULL};
  CHECK(accel_tensor_from_data(features, shape, 2, ACCEL_DTYPE_FLOAT32, &tensors[0]));
  CHECK(accel_tensor_from_data(labels, shape, 1, ACCEL_DTYPE_INT64, &tensors[1]));
  accel_dataset_t *dataset = NULL;
  CHECK(accel_dataset_tensors(tensors, 2, &dataset));
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = BATCH;
  options.shuffle = 1;
  accel_dataloader_t *loader = NULL;
  CHECK(accel_dataloader_create(dataset, &options, &loader));
  accel_dataset_release(dataset);
  accel_tensor_release(tensors[0]);
  accel_tensor_release(tensors[1]);
  return loader;
}

static struct run run_begin(accel_state_t *state, int64_t seed) {
  CHECK(accel_set_seed(state, seed, 0, 0));
  accel_module_t *model = new_model();
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = 0.01;
  accel_optimizer_t *optimizer = NULL;
  accel_scheduler_t *scheduler = NULL;
  CHECK(accel_optimizer_adamw(model, &adam, &optimizer));
  CHECK(accel_scheduler_cosine(optimizer, 2, 12, 0, &scheduler));
  accel_dataloader_t *loader = new_loader();
  struct run run = {NULL, NULL, NULL, NULL};
  CHECK(accel_prepare_model(state, model, NULL, &run.model));
  CHECK(accel_prepare_optimizer(state, optimizer, &run.optimizer));
  CHECK(accel_prepare_scheduler(state, scheduler, &run.scheduler));
  CHECK(accel_prepare_data_loader(state, loader, NULL, &run.loader));
  accel_dataloader_release(loader);
  accel_scheduler_release(scheduler);
  accel_optimizer_release(optimizer);
  accel_module_release(model);
  return run;
}

static void run_end(accel_state_t *state, struct run *run) {
  accel_dataloader_release(run->loader);
  accel_scheduler_release(run->scheduler);
  accel_optimizer_release(run->optimizer);
  accel_module_release(run->model);
  CHECK(accel_free_memory(state));
}

/* Returns the mean of the processes' losses. */
static double train_step(accel_state_t *state, struct run *run) {
  accel_value_t batch = ACCEL_VALUE_INIT, logits = ACCEL_VALUE_INIT;
  accel_status_t status = accel_dataloader_next(run->loader, &batch);
  if (status == ACCEL_ITER_END) status = accel_dataloader_next(run->loader, &batch);
  CHECK(status);
  accel_scope_t *scope = NULL;
  accel_tensor_t *loss = NULL;
  double number = 0;
  CHECK(accel_accumulate_begin(state, &run->model, 1, &scope));
  CHECK(accel_module_call(run->model, accel_value_at(&batch, 0), 1, &logits));
  CHECK(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
  CHECK(accel_backward(state, loss, NULL));
  CHECK(accel_optimizer_step(run->optimizer));
  CHECK(accel_scheduler_step(run->scheduler));
  CHECK(accel_optimizer_zero_grad(run->optimizer, 1));
  CHECK(accel_scope_end(scope));
  const accel_value_t mine = accel_arg_tensor(loss);
  accel_value_t mean = ACCEL_VALUE_INIT;
  CHECK(accel_reduce(state, &mine, ACCEL_REDUCE_MEAN, 1, &mean));
  CHECK(accel_tensor_item(mean.as.tensor, &number));
  accel_value_dispose(&mean);
  accel_tensor_release(loss);
  accel_value_dispose(&logits);
  accel_value_dispose(&batch);
  return number;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  const int says = accel_is_main_process(state);

  double losses[STEPS];
  struct run run = run_begin(state, 0);
  for (int step = 1; step <= STEPS; step++) {
    losses[step - 1] = train_step(state, &run);
    if (says) printf("step %d loss: %.4f\n", step, losses[step - 1]);
    if (step == SAVED_AFTER) CHECK(accel_save_state(state, argv[1], NULL));
  }
  run_end(state, &run);
  if (says) printf("saved after step: %d\n", SAVED_AFTER);

  run = run_begin(state, 1); /* other weights, which are replaced */
  CHECK(accel_load_state(state, argv[1], NULL));
  int equal = 1;
  for (int step = SAVED_AFTER + 1; step <= STEPS; step++) {
    const double loss = train_step(state, &run);
    equal = equal && loss == losses[step - 1];
    if (says) printf("resumed step %d loss: %.4f\n", step, loss);
  }
  if (says) printf("equal: %s\n", equal ? "true" : "false");
  run_end(state, &run);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return !equal;
}
