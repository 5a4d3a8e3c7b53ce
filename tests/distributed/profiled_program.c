/* SPDX-License-Identifier: Apache-2.0 */
/* A program that trains: profiled_program STEPS [profile FOLDER | leave FOLDER | span | fail |
 * checkpoint FOLDER | nothing]. With `profile` it records itself, as with `leave`, which exits meanwhile; with the
 * others `accel profile` does. */
#include <string.h>

#include "rank_program.h"

#define WIDTH 16
#define ROWS 64

struct training {
  accel_state_t* state;
  accel_module_t *model, *prepared;
  accel_optimizer_t *plain, *optimizer;
  accel_dataset_t* dataset;
  accel_dataloader_t *loader, *batches;
};

static struct training begin_training(void) {
  struct training training;
  const int64_t shape[2] = {ROWS, WIDTH};
  accel_tensor_t* rows = NULL;
  memset(&training, 0, sizeof training);
  CHECK(accel_state_create(NULL, &training.state));
  CHECK(accel_set_seed(training.state, 5, 0, 0));
  CHECK(accel_tensor_full(shape, 2, 0.5, ACCEL_DTYPE_FLOAT32, &kCpu, &rows));
  CHECK(accel_dataset_tensors(&rows, 1, &training.dataset));
  accel_tensor_release(rows);
  CHECK(accel_dataloader_create(training.dataset, NULL, &training.loader));
  CHECK(accel_prepare_data_loader(training.state, training.loader, NULL, &training.batches));
  CHECK(accel_module_linear(WIDTH, 1, 1, &training.model));
  CHECK(accel_prepare_model(training.state, training.model, NULL, &training.prepared));
  CHECK(accel_optimizer_sgd(training.model, NULL, &training.plain));
  CHECK(accel_prepare_optimizer(training.state, training.plain, &training.optimizer));
  return training;
}

static void run_step(struct training* training) {
  accel_value_t batch = ACCEL_VALUE_INIT, output = ACCEL_VALUE_INIT;
  accel_status_t status = accel_dataloader_next(training->batches, &batch);
  if (status == ACCEL_ITER_END) status = accel_dataloader_next(training->batches, &batch);
  CHECK(status);
  CHECK(accel_module_call(training->prepared, accel_value_at(&batch, 0), 1, &output));
  CHECK(accel_backward(training->state, output.as.tensor, NULL));
  CHECK(accel_optimizer_step(training->optimizer));
  CHECK(accel_optimizer_zero_grad(training->optimizer, 1));
  accel_value_dispose(&output);
  accel_value_dispose(&batch);
}

static void end_training(struct training* training) {
  CHECK(accel_end_training(training->state));
  accel_optimizer_release(training->optimizer);
  accel_optimizer_release(training->plain);
  accel_module_release(training->prepared);
  accel_module_release(training->model);
  accel_dataloader_release(training->batches);
  accel_dataloader_release(training->loader);
  accel_dataset_release(training->dataset);
  accel_state_release(training->state);
}

int main(int count, char** arguments) {
  const int steps = count > 1 ? atoi(arguments[1]) : 0;
  const char* const mode = count > 2 ? arguments[2] : "";
  const char* const folder = count > 3 ? arguments[3] : NULL;
  struct training training;
  accel_profile_t* profile = NULL;
  int step;
  if (strcmp(mode, "nothing") == 0) return 0;
  training = begin_training();
  if (strcmp(mode, "profile") == 0 || strcmp(mode, "leave") == 0) {
    accel_profile_options_t options = ACCEL_PROFILE_OPTIONS_INIT;
    options.output_trace_dir = folder;
    CHECK(accel_profile_begin(training.state, &options, NULL, NULL, NULL, &profile));
  }
  for (step = 0; step < steps; step++) {
    accel_scope_t* scope = NULL;
    CHECK(accel_span_begin("a step of the program", &scope));
    run_step(&training);
    CHECK(accel_scope_end(scope));
    if (profile != NULL) CHECK(accel_profile_step(profile));
    if (strcmp(mode, "checkpoint") == 0 && step == steps / 2) {
      accel_save_state_options_t options = ACCEL_SAVE_STATE_OPTIONS_INIT;
      options.asynchronous = 1;
      CHECK(accel_save_state(training.state, folder, &options));
      CHECK(accel_checkpoint_wait(training.state, 60000));
    }
  }
  if (strcmp(mode, "fail") == 0 || strcmp(mode, "leave") == 0) exit(3);
  if (profile != NULL) CHECK(accel_profile_end(profile));
  accel_profile_release(profile);
  end_training(&training);
  return 0;
}
