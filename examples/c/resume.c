/* A training that may be interrupted at any time and goes on from its last checkpoint, with as many processes as there
 * are then:
 *
 *     accel launch --num-processes 2 --max-restarts 3 -- ./resume FOLDER [STEPS [MILLISECONDS]]
 *
 * It takes a checkpoint every 10 steps. SIGTERM and SIGUSR1, which batch systems send before they take the machine
 * away, make it take one at the end of the step, and exit with status 75: "start me again". A step takes MILLISECONDS
 * at least, so that there is time to try that. */
#define _XOPEN_SOURCE 700
#include "digits.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 200, SAVED_EVERY = 10, KEPT = 3, SAMPLES = 960, BATCH = 8, HIDDEN = 32, START_AGAIN = 75 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static volatile sig_atomic_t is_told_to_stop;

static void stop_soon(int number) {
  (void)number;
  is_told_to_stop = 1;
}

static accel_status_t save_step(accel_value_t *out, void *step) {
  *out = accel_arg_int(*(int64_t *)step);
  return ACCEL_OK;
}

static accel_status_t load_step(const accel_value_t *saved, void *step) {
  *(int64_t *)step = saved->as.integer;
  return ACCEL_OK;
}

static accel_module_t *new_model(void) {
  accel_module_t *layers[3] = {NULL}, *model = NULL;
  CHECK(accel_module_linear(SEGMENTS, HIDDEN, 1, &layers[0]));
  CHECK(accel_module_activation("relu", &layers[1]));
  CHECK(accel_module_linear(HIDDEN, DIGITS, 1, &layers[2]));
  CHECK(accel_module_sequential(layers, 3, &model));
  for (int i = 0; i < 3; i++) accel_module_release(layers[i]);
  return model;
}

static accel_dataloader_t *new_loader(void) {
  static float features[SAMPLES * SEGMENTS];
  static int64_t labels[SAMPLES];
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

/* Returns the mean of the processes' losses. */
static double train_step(accel_state_t *state, accel_module_t *model, accel_optimizer_t *optimizer,
                         accel_dataloader_t *loader) {
  accel_value_t batch = ACCEL_VALUE_INIT, logits = ACCEL_VALUE_INIT, mean = ACCEL_VALUE_INIT;
  accel_status_t status = accel_dataloader_next(loader, &batch);
  if (status == ACCEL_ITER_END) status = accel_dataloader_next(loader, &batch);
  CHECK(status);
  accel_tensor_t *loss = NULL;
  double number = 0;
  CHECK(accel_module_call(model, accel_value_at(&batch, 0), 1, &logits));
  CHECK(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
  CHECK(accel_backward(state, loss, NULL));
  CHECK(accel_optimizer_step(optimizer));
  CHECK(accel_optimizer_zero_grad(optimizer, 1));
  const accel_value_t mine = accel_arg_tensor(loss);
  CHECK(accel_reduce(state, &mine, ACCEL_REDUCE_MEAN, 1, &mean));
  CHECK(accel_tensor_item(mean.as.tensor, &number));
  accel_value_dispose(&mean);
  accel_tensor_release(loss);
  accel_value_dispose(&logits);
  accel_value_dispose(&batch);
  return number;
}

/* Whether any process was told to stop: all get the same answer. */
static int is_to_stop(accel_state_t *state) {
  int32_t stops = 0;
  if (is_told_to_stop) CHECK(accel_set_trigger(state));
  CHECK(accel_check_trigger(state, &stops));
  return stops;
}

int main(int argc, char **argv) {
  if (argc < 2 || argc > 4) {
    fprintf(stderr, "usage: %s FOLDER [STEPS [MILLISECONDS]]\n", argv[0]);
    return 2;
  }
  const int64_t steps = argc > 2 ? atoll(argv[2]) : STEPS;
  const struct timespec pause = {0, argc > 3 ? atol(argv[3]) * 1000000 : 0};
  const struct sigaction action = {.sa_handler = stop_soon, .sa_flags = SA_RESTART};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);

  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.timeout_ms = 20000;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  accel_project_options_t project = ACCEL_PROJECT_OPTIONS_INIT;
  project.project_dir = argv[1];
  project.automatic_checkpoint_naming = 1;
  project.total_limit = KEPT;
  CHECK(accel_set_project(state, &project));

  int64_t step = 0;
  CHECK(accel_set_seed(state, 0, 0, 0));
  accel_prepare_item_t plain[3] = {ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT};
  accel_prepare_item_t prepared[3];
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = 0.01;
  plain[0].module = new_model();
  CHECK(accel_optimizer_adamw(plain[0].module, &adam, &plain[1].optimizer));
  plain[2].loader = new_loader();
  CHECK(accel_prepare(state, plain, 3, prepared));
  CHECK(accel_register_for_checkpointing(state, "step", save_step, load_step, &step, NULL));

  const int says = accel_is_main_process(state);
  const accel_status_t loaded = accel_load_state(state, NULL, NULL);
  if (loaded != ACCEL_ERROR_NOT_FOUND) CHECK(loaded);
  if (says) printf("processes: %d, from step: %lld\n", accel_num_processes(state), (long long)step), fflush(stdout);

  int stops = 0;
  while (step < steps && !stops) {
    const double loss = train_step(state, prepared[0].module, prepared[1].optimizer, prepared[2].loader);
    step++;
    if (says) printf("step %lld loss: %.6f\n", (long long)step, loss), fflush(stdout);
    stops = is_to_stop(state);
    if (stops || step % SAVED_EVERY == 0) CHECK(accel_save_state(state, NULL, NULL));
    nanosleep(&pause, NULL);
  }
  if (says && stops) printf("stopped after step: %lld\n", (long long)step), fflush(stdout);

  CHECK(accel_end_training(state));
  for (int i = 0; i < 2; i++) {
    accel_prepare_item_t *const items = i == 0 ? plain : prepared;
    accel_module_release(items[0].module);
    accel_optimizer_release(items[1].optimizer);
    accel_dataloader_release(items[2].loader);
  }
  accel_state_release(state);
  return stops ? START_AGAIN : 0;
}
