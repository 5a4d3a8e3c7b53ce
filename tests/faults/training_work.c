/* SPDX-License-Identifier: Apache-2.0 */
#include "training_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The objects of a training program. */
typedef struct training {
  accel_state_t* state;
  accel_module_t* model;
  accel_optimizer_t* optimizer;
  accel_dataloader_t* loader;
} training_t;

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, 0};
static double registered = 0; /* an object of the program in the checkpoint */

#define TRY(call)             \
  do {                        \
    status = (call);          \
    if (status < 0) goto end; \
  } while (0)

/* Without a fault the deadline must hold on the busiest machine. With one, whoever waits for a rank that never came
 * waits until then; a deadline that passes too early is an answer like others. */
static accel_status_t create_state(const work_t* work, accel_state_t** out) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.num_threads = 1;
  options.timeout_ms = work->number > 0 ? 3000 : 60000;
  return accel_state_create(&options, out);
}

/* A list of five, so that one that gets lost is seen. */
static accel_status_t save_registered(accel_value_t* out, void* user_data) {
  (void)user_data;
  accel_value_t items[5];
  for (int i = 0; i < 5; i++) items[i] = accel_arg_double(registered + i + 0.5);
  return accel_value_list(items, 5, out);
}

static accel_status_t load_registered(const accel_value_t* state, void* user_data) {
  (void)user_data;
  registered = -1;
  if (accel_value_count(state) != 5) return ACCEL_OK;
  double first = 0;
  for (size_t i = 0; i < 5; i++) {
    const accel_value_t* value = accel_value_at(state, i);
    if (value == NULL) return ACCEL_ERROR_OUT_OF_MEMORY;
    if (i == 0) first = value->as.number - 0.5;
    if (value->as.number != first + (double)i + 0.5) return ACCEL_OK;
  }
  registered = first;
  return ACCEL_OK;
}

static accel_status_t make_dataset(const char* folder, accel_dataset_t** out) {
  char path[1000];
  snprintf(path, sizeof path, "%s/rows.jsonl", folder);
  return accel_dataset_json_lines(path, NULL, 0, out);
}

static void end_training(training_t* t) {
  if (t->loader != NULL) accel_dataloader_release(t->loader);
  if (t->optimizer != NULL) accel_optimizer_release(t->optimizer);
  if (t->model != NULL) accel_module_release(t->model);
  if (t->state != NULL) accel_state_release(t->state);
}

static accel_status_t begin_training(const work_t* work, int64_t workers, training_t* t) {
  accel_module_t* layers[3] = {NULL};
  accel_module_t* model = NULL;
  accel_optimizer_t* optimizer = NULL;
  accel_dataset_t* dataset = NULL;
  accel_dataloader_t* loader = NULL;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_status_t status = ACCEL_OK;
  TRY(create_state(work, &t->state));
  TRY(accel_set_seed(t->state, 1, 0, 0));
  TRY(accel_module_linear(kWide, kWide, 1, &layers[0]));
  TRY(accel_module_activation("relu", &layers[1]));
  TRY(accel_module_linear(kWide, kWide, 1, &layers[2]));
  TRY(accel_module_sequential(layers, 3, &model));
  TRY(accel_optimizer_adamw(model, NULL, &optimizer));
  TRY(make_dataset(work->folder, &dataset));
  options.batch_size = 4;
  options.shuffle = 1;
  options.num_workers = workers;
  TRY(accel_dataloader_create(dataset, &options, &loader));
  TRY(accel_prepare_model(t->state, model, NULL, &t->model));
  TRY(accel_prepare_optimizer(t->state, optimizer, &t->optimizer));
  TRY(accel_prepare_data_loader(t->state, loader, NULL, &t->loader));
  TRY(accel_register_for_checkpointing(t->state, "registered", save_registered, load_registered, NULL, NULL));
end:
  if (loader != NULL) accel_dataloader_release(loader);
  if (dataset != NULL) accel_dataset_release(dataset);
  if (optimizer != NULL) accel_optimizer_release(optimizer);
  if (model != NULL) accel_module_release(model);
  for (int i = 0; i < 3; i++)
    if (layers[i] != NULL) accel_module_release(layers[i]);
  return status;
}

/* A tensor of a batch; its item is made when it is asked for. */
static accel_status_t tensor_of(const accel_value_t* batch, const char* key, accel_tensor_t** out) {
  const accel_value_t* const item = accel_value_get(batch, key);
  if (item == NULL) return ACCEL_ERROR_OUT_OF_MEMORY;
  *out = item->as.tensor;
  return ACCEL_OK;
}

static accel_status_t train_step(training_t* t) {
  accel_value_t batch = ACCEL_VALUE_INIT, input, logits = ACCEL_VALUE_INIT;
  accel_tensor_t *values = NULL, *labels = NULL, *x = NULL, *loss = NULL;
  accel_status_t status = ACCEL_OK;
  TRY(accel_dataloader_next(t->loader, &batch));
  TRY(tensor_of(&batch, "x", &values));
  TRY(tensor_of(&batch, "y", &labels));
  TRY(accel_tensor_to(values, ACCEL_DTYPE_FLOAT32, &kCpu, 0, &x));
  input = accel_arg_tensor(x);
  TRY(accel_module_call(t->model, &input, 1, &logits));
  TRY(accel_cross_entropy(logits.as.tensor, labels, &loss));
  TRY(accel_backward(t->state, loss, NULL));
  TRY(accel_optimizer_step(t->optimizer));
  TRY(accel_optimizer_zero_grad(t->optimizer, 1));
end:
  if (loss != NULL) accel_tensor_release(loss);
  if (x != NULL) accel_tensor_release(x);
  accel_value_dispose(&logits);
  accel_value_dispose(&batch);
  return status;
}

/* All weights become `number`, and so does the registered object. */
static accel_status_t fill(const training_t* t, float number) {
  accel_value_t parameters = ACCEL_VALUE_INIT;
  accel_status_t status = accel_module_named_parameters(t->model, &parameters);
  for (size_t i = 0; status >= 0 && i < accel_value_count(&parameters); i++) {
    accel_tensor_t* const parameter = accel_value_at(&parameters, i)->as.tensor;
    void* data = NULL;
    int64_t count = 0;
    TRY(accel_tensor_data(parameter, &data));
    TRY(accel_tensor_numel(parameter, &count));
    for (int64_t j = 0; j < count; j++) ((float*)data)[j] = number;
  }
  registered = number;
end:
  accel_value_dispose(&parameters);
  return status;
}

/* The number of all weights and of the registered object; -1 when they differ. */
static int32_t contents_of(const training_t* t) {
  accel_value_t parameters = ACCEL_VALUE_INIT;
  int32_t number = (int32_t)registered;
  if (accel_module_named_parameters(t->model, &parameters) < 0) return -1;
  for (size_t i = 0; i < accel_value_count(&parameters); i++) {
    accel_tensor_t* const parameter = accel_value_at(&parameters, i)->as.tensor;
    void* data = NULL;
    int64_t count = 0;
    if (accel_tensor_data(parameter, &data) < 0 || accel_tensor_numel(parameter, &count) < 0) number = -1;
    for (int64_t j = 0; number >= 0 && j < count; j++)
      if (((float*)data)[j] != (float)number) number = -1;
  }
  accel_value_dispose(&parameters);
  return number;
}

/* The works. What a call answers is noted before the objects go; calls fail between arm() and disarm_calls(). */

static void arm(const work_t* work) {
  arm_calls(work->kind, work->rank == work->failing ? work->number : 0, work->lasting);
}

void note_calls(outcome_t* outcome) {
  disarm_calls();
  for (int kind = 0; kind < kKindsOfCalls; kind++) outcome->counts[kind] = count_of_calls(kind);
  outcome->failed = a_call_has_failed();
}

static void note(outcome_t* outcome, accel_status_t status) {
  note_calls(outcome);
  outcome->status = status;
  if (status < 0) snprintf(outcome->message, sizeof outcome->message, "%s", accel_last_error());
}

// Regression: a group that ended without memory ended the process: its request to the progress thread needed some.
static void work_create(const work_t* work, outcome_t* outcome) {
  accel_state_t* state = NULL;
  arm(work);
  const accel_status_t status = create_state(work, &state);
  note(outcome, status);
  if (state != NULL) accel_state_release(state);
}

static void work_train(const work_t* work, outcome_t* outcome) {
  training_t t = {NULL, NULL, NULL, NULL};
  accel_status_t status = begin_training(work, 0, &t);
  arm(work);
  for (int i = 0; i < 3 && status >= 0; i++) status = train_step(&t);
  note(outcome, status);
  end_training(&t);
}

static void work_data(const work_t* work, outcome_t* outcome) {
  training_t t = {NULL, NULL, NULL, NULL};
  accel_value_t batch = ACCEL_VALUE_INIT;
  accel_status_t status = create_state(work, &t.state);
  if (status >= 0) accel_state_release(t.state);
  t.state = NULL;
  arm(work);
  if (status >= 0) status = begin_training(work, 2, &t);
  while (status >= 0 && status != ACCEL_ITER_END) {
    status = accel_dataloader_next(t.loader, &batch);
    accel_value_dispose(&batch);
  }
  note(outcome, status);
  end_training(&t);
}

// Regression: a lack of memory during a save lost parts of the checkpoint, and the save said OK.
static void work_save(const work_t* work, outcome_t* outcome) {
  training_t t = {NULL, NULL, NULL, NULL};
  char path[1000];
  snprintf(path, sizeof path, "%s/state", work->folder);
  accel_status_t status = begin_training(work, 0, &t);
  const int32_t links = work->options != NULL && work->options->incremental == 1 && work->number >= 0;
  if (status >= 0) /* so that the optimizer has a state, or that of the files, which become links */
    status = links ? accel_load_state(t.state, path, NULL) : train_step(&t);
  if (status >= 0) status = fill(&t, work->number >= 0 ? 2 : 1);
  arm(work);
  if (status >= 0) status = accel_save_state(t.state, path, work->options);
  if (status >= 0 && work->options != NULL) status = accel_checkpoint_wait(t.state, 20000);
  note(outcome, status);
  end_training(&t);
}

// Regression: a lack of memory during a load was reported as damage of the file.
static void work_load(const work_t* work, outcome_t* outcome) {
  training_t t = {NULL, NULL, NULL, NULL};
  char path[1000];
  snprintf(path, sizeof path, "%s/state", work->folder);
  accel_status_t status = begin_training(work, 0, &t);
  if (status >= 0) status = fill(&t, 7);
  arm(work);
  if (status >= 0) status = accel_load_state(t.state, path, NULL);
  note(outcome, status);
  if (status >= 0) outcome->contents = contents_of(&t);
  end_training(&t);
}

static const named_work_t kWorks[] = {{"create", work_create, 0},
                                      {"train", work_train, 0},
                                      {"data", work_data, 0},
                                      {"save", work_save, 1},
                                      {"load", work_load, 0}};

void write_rows(const char* folder) {
  char path[1000];
  snprintf(path, sizeof path, "%s/rows.jsonl", folder);
  FILE* const file = fopen(path, "w");
  if (file == NULL) exit(2);
  for (int row = 0; row < kRows; row++) {
    fprintf(file, "{\"x\": [");
    for (int i = 0; i < kWide; i++) fprintf(file, "%s%.1f", i == 0 ? "" : ", ", (row * 7 + i) % 10 / 10.0);
    fprintf(file, "], \"y\": %d}\n", row % kWide);
  }
  if (fclose(file) != 0) exit(2);
}

const named_work_t* work_named(const char* name) {
  for (size_t i = 0; i < sizeof kWorks / sizeof *kWorks; i++)
    if (strcmp(kWorks[i].name, name) == 0) return &kWorks[i];
  return NULL;
}
