/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded training, also of layers that are split, whose ranks are lost in the middle of it, that continues from a
 * checkpoint, and that does not grow.
 */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>

#include "rank_program.h"

#define FEATURES 9
#define HIDDEN 256 /* gathers of several hundred KiB */
#define CLASSES 5
#define ROWS 12 /* of all ranks together, so that the losses do not depend on their number */
#define FIRST_SAVE 4
#define STEPS 12

typedef struct training {
  accel_state_t* state;
  int64_t part, parts; /* of the rows of a batch: ranks that have parts of the same layers have the same rows */
  accel_module_t *model, *prepared;
  accel_optimizer_t *plain, *optimizer;
  int64_t step;
  int64_t call_begin; /* of the latest call of the library that may wait */
  /* Where this rank kills itself at the step `killed_at`, and how. */
  char place[16];
  int64_t killed_at;
  int signal;
} training_t;

static void die_at(const training_t* training, const char* place) {
  if (strcmp(training->place, place) == 0 && training->step == training->killed_at) raise(training->signal);
}

static accel_status_t die_in_forward(accel_module_t* module, const accel_value_t* values, accel_value_t* out_values,
                                     void* training) {
  (void)module, (void)values, (void)out_values;
  die_at(training, "forward");
  return ACCEL_OK;
}

static accel_status_t die_in_backward(accel_module_t* module, const accel_value_t* values, accel_value_t* out_values,
                                      void* training) {
  (void)module, (void)values, (void)out_values;
  die_at(training, "backward");
  return ACCEL_OK;
}

static accel_status_t die_in_save(const accel_value_t* models, const char* folder, accel_value_t* out_models,
                                  void* training) {
  (void)models, (void)folder, (void)out_models;
  die_at(training, "save");
  return ACCEL_OK;
}

/* SGD with momentum, on the rows of this rank. */
static accel_status_t update(accel_tensor_t* parameter, accel_tensor_t* gradient, const accel_value_t* states,
                             int64_t step, double lr, double weight_decay, void* training) {
  (void)step, (void)weight_decay;
  die_at(training, "step");
  void *p = NULL, *g = NULL, *m = NULL;
  int64_t count = 0;
  CHECK(accel_tensor_numel(parameter, &count));
  CHECK(accel_tensor_data(parameter, &p));
  CHECK(accel_tensor_data(gradient, &g));
  CHECK(accel_tensor_data(accel_value_get(states, "momentum")->as.tensor, &m));
  for (int64_t i = 0; i < count; i++) {
    ((float*)m)[i] = 0.9F * ((float*)m)[i] + ((float*)g)[i];
    ((float*)p)[i] -= (float)lr * ((float*)m)[i];
  }
  return ACCEL_OK;
}

static training_t* begin(accel_state_t* state, int32_t state_dict_type) {
  static const char* const kStates[] = {"momentum"};
  accel_module_t* layers[5] = {NULL, NULL, NULL, NULL, NULL};
  training_t* const training = calloc(1, sizeof *training);
  EXPECT(training != NULL);
  training->state = state;
  int64_t tensor_ranks = 1;
  accel_mesh_t* mesh = NULL;
  CHECK(accel_state_mesh(state, &mesh));
  CHECK(accel_mesh_size(mesh, "tensor", &tensor_ranks));
  CHECK(accel_mesh_size(mesh, "replicate,shard", &training->parts));
  CHECK(accel_mesh_coordinate(mesh, "replicate,shard", &training->part));
  accel_mesh_release(mesh);
  CHECK(accel_set_seed(state, 7, 0, 0));
  CHECK(accel_module_linear(FEATURES, HIDDEN, 1, &layers[0]));
  CHECK(accel_module_activation("tanh", &layers[1]));
  CHECK(accel_module_linear(HIDDEN, HIDDEN, 1, &layers[2]));
  CHECK(accel_module_activation("tanh", &layers[3]));
  CHECK(accel_module_linear(HIDDEN, CLASSES, 1, &layers[4]));
  CHECK(accel_module_sequential(layers, 5, &training->model));
  /* Between two groups: those of the layers around it are about to be gathered, or on their way. */
  CHECK(accel_module_add_hook(layers[1], ACCEL_HOOK_FORWARD, die_in_forward, training, NULL, NULL));
  CHECK(accel_module_add_hook(layers[3], ACCEL_HOOK_BACKWARD, die_in_backward, training, NULL, NULL));
  for (size_t i = 0; i < 5; i++) accel_module_release(layers[i]);

  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  fsdp.enabled = 1;
  fsdp.auto_wrap_policy = ACCEL_AUTO_WRAP_POLICY_TRANSFORMER_BASED_WRAP;
  fsdp.transformer_cls_names_to_wrap = "Linear";
  fsdp.forward_prefetch = 1;
  fsdp.state_dict_type = state_dict_type;
  options.fsdp = &fsdp;
  accel_tensor_parallel_options_t splitting = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
  splitting.plan = "0 colwise; 2 rowwise; 4 colwise_gather_output";
  if (tensor_ranks > 1) options.tensor_parallel = &splitting;
  CHECK(accel_optimizer_create(training->model, kStates, 1, 0.2, 0, update, training, NULL, &training->plain));
  CHECK(accel_prepare_model(state, training->model, &options, &training->prepared));
  CHECK(accel_prepare_optimizer(state, training->plain, &training->optimizer));
  CHECK(accel_register_save_state_pre_hook(state, die_in_save, training, NULL, NULL));
  return training;
}

static void end(training_t* training) {
  accel_optimizer_release(training->optimizer);
  accel_optimizer_release(training->plain);
  accel_module_release(training->prepared);
  accel_module_release(training->model);
  CHECK(accel_free_memory(training->state));
  free(training);
}

/* This rank's rows of the data of a step. */
static void make_batch(const training_t* training, accel_tensor_t** inputs, accel_tensor_t** labels) {
  const int64_t rows = ROWS / training->parts, first = rows * training->part;
  const int64_t shape[2] = {rows, FEATURES};
  float x[ROWS * FEATURES];
  int64_t y[ROWS];
  for (int64_t r = 0; r < rows; r++) {
    y[r] = (first + r) * 3 % CLASSES;
    for (int64_t f = 0; f < FEATURES; f++)
      x[r * FEATURES + f] = (float)sin((double)((first + r) * 17 + f * 3) + 0.02 * (double)training->step);
  }
  CHECK(accel_tensor_from_data(x, shape, 2, ACCEL_DTYPE_FLOAT32, inputs));
  CHECK(accel_tensor_from_data(y, shape, 1, ACCEL_DTYPE_INT64, labels));
}

static accel_status_t forward(training_t* training, accel_tensor_t** loss) {
  accel_tensor_t *inputs = NULL, *labels = NULL;
  accel_value_t logits = ACCEL_VALUE_INIT;
  make_batch(training, &inputs, &labels);
  const accel_value_t argument = accel_arg_tensor(inputs);
  training->call_begin = now_ms();
  const accel_status_t status = accel_module_call(training->prepared, &argument, 1, &logits);
  if (status == ACCEL_OK) CHECK(accel_cross_entropy(logits.as.tensor, labels, loss));
  accel_value_dispose(&logits);
  accel_tensor_release(labels);
  accel_tensor_release(inputs);
  return status;
}

#define TRY(call)                                            \
  do {                                                       \
    if (status == ACCEL_OK) training->call_begin = now_ms(); \
    if (status == ACCEL_OK) status = (call);                 \
  } while (0)

/* With the loss of this rank, if that is asked for. */
static accel_status_t train_step(training_t* training, double* out_loss) {
  accel_tensor_t* loss = NULL;
  accel_status_t status = forward(training, &loss);
  TRY(accel_backward(training->state, loss, NULL));
  TRY(accel_clip_grad_norm(training->state, training->prepared, 1.0, 2.0, NULL));
  TRY(accel_optimizer_step(training->optimizer));
  TRY(accel_optimizer_zero_grad(training->optimizer, 1));
  if (status == ACCEL_OK && out_loss != NULL) CHECK(accel_tensor_item(loss, out_loss));
  accel_tensor_release(loss);
  return status;
}

/* Trains until a rank is lost, and saves every few steps. The argument: "FOLDER STATE_DICT_TYPE PLACE SIGNAL STEP",
 * where this rank kills itself at that step in "forward", "backward", "step" or "save", or nowhere. */
void run_sharding_until_lost(accel_state_t* state, const char* argument) {
  char folder[1024], place[16], path[2048];
  int state_dict_type = 0, number = 0;
  long killed_at = 0;
  EXPECT(argument != NULL &&
         sscanf(argument, "%1023s %d %15s %d %ld", folder, &state_dict_type, place, &number, &killed_at) == 5);
  training_t* const training = begin(state, state_dict_type);
  snprintf(training->place, sizeof training->place, "%s", place);
  training->signal = number;
  training->killed_at = killed_at;
  accel_status_t status = ACCEL_OK;
  while (status == ACCEL_OK) {
    status = train_step(training, NULL);
    training->step++;
    if (training->step % FIRST_SAVE != 0) continue;
    snprintf(path, sizeof path, "%s/step%d", folder, (int)training->step);
    TRY(accel_save_state(state, path, NULL));
    if (training->step > FIRST_SAVE) continue;
    puts("running");
    fflush(stdout);
  }
  report_failure(now_ms() - training->call_begin, status);
  end(training);
}

/* Prints the mean loss of each step, from the beginning or from a checkpoint: "FOLDER/step4". */
void run_sharding_losses(accel_state_t* state, const char* checkpoint) {
  training_t* const training = begin(state, ACCEL_STATE_DICT_TYPE_FULL_STATE_DICT);
  if (checkpoint != NULL) {
    accel_value_t report = ACCEL_VALUE_INIT;
    CHECK(accel_checkpoint_verify(checkpoint, &report));
    EXPECT(accel_value_count(accel_value_get(&report, "problems")) == 0);
    accel_value_dispose(&report);
    CHECK(accel_load_state(state, checkpoint, NULL));
    const char* const name = strrchr(checkpoint, '/');
    EXPECT(name != NULL && sscanf(name, "/step%" SCNd64, &training->step) == 1);
  }
  for (; training->step < STEPS; training->step++) {
    double loss = 0;
    const int64_t one = 1;
    accel_tensor_t* mean = NULL;
    CHECK(train_step(training, &loss));
    CHECK(accel_tensor_full(&one, 1, loss, ACCEL_DTYPE_FLOAT64, &kCpu, &mean));
    CHECK(accel_all_reduce(state, mean, ACCEL_REDUCE_MEAN));
    CHECK(accel_tensor_item(mean, &loss));
    if (accel_is_main_process(state)) printf("%d %.9g\n", (int)training->step, loss);
    accel_tensor_release(mean);
  }
  fflush(stdout);
  end(training);
}

/* What the process has of the system, and of the caching allocator. */
typedef struct holdings {
  int64_t descriptors, threads, shared_memory, tensor_bytes, cached_bytes, resident_kib, live_objects;
} holdings_t;

static int64_t entries_of(const char* path) {
  int64_t count = 0;
  DIR* const folder = opendir(path);
  EXPECT(folder != NULL);
  while (readdir(folder) != NULL) count++;
  EXPECT(closedir(folder) == 0);
  return count;
}

/* Mappings of shared memory, and resident anonymous memory. */
static int64_t lines_with(const char* path, const char* part, int64_t* number) {
  char line[4096];
  int64_t count = 0;
  FILE* const file = fopen(path, "r");
  EXPECT(file != NULL);
  while (fgets(line, sizeof line, file) != NULL) {
    const char* const found = strstr(line, part);
    if (found == NULL) continue;
    count++;
    if (number != NULL) *number = strtoll(found + strlen(part), NULL, 10);
  }
  EXPECT(fclose(file) == 0);
  return count;
}

static holdings_t observe(void) {
  holdings_t now = {0, 0, 0, 0, 0, 0, 0};
  accel_value_t report = ACCEL_VALUE_INIT;
  CHECK(accel_memory_report(0, &report));
  const accel_value_t* const cpu = accel_value_get(&report, "cpu");
  now.tensor_bytes = accel_value_get(cpu, "in_use")->as.integer;
  now.cached_bytes = accel_value_get(cpu, "kept")->as.integer;
  accel_value_dispose(&report);
  now.descriptors = entries_of("/proc/self/fd");
  now.threads = entries_of("/proc/self/task");
  now.shared_memory = lines_with("/proc/self/maps", " rw-s ", NULL);
  EXPECT(lines_with("/proc/self/status", "RssAnon:", &now.resident_kib) == 1);
  now.live_objects = accel_debug_live_objects();
  return now;
}

/* A thousand steps of two micro-batches, with a forward whose backward nobody calls now and then. The argument: "FOLDER
 * STATE_DICT_TYPE". */
void run_sharding_growth(accel_state_t* state, const char* argument) {
  enum { BEGIN = 300, END = 1000, SAVE = 250 };
  char folder[1024], path[2048];
  int state_dict_type = 0;
  EXPECT(argument != NULL && sscanf(argument, "%1023s %d", folder, &state_dict_type) == 2);
  holdings_t before = {0, 0, 0, 0, 0, 0, 0};
  accel_gradient_accumulation_options_t accumulation = ACCEL_GRADIENT_ACCUMULATION_OPTIONS_INIT;
  accumulation.num_steps = 2;
  CHECK(accel_set_gradient_accumulation(state, &accumulation));
  snprintf(path, sizeof path, "%s/state", folder);
  training_t* const training = begin(state, state_dict_type);
  for (training->step = 0; training->step < END; training->step++) {
    if (training->step == BEGIN) before = observe();
    for (int micro = 0; micro < 2; micro++) {
      accel_scope_t* scope = NULL;
      CHECK(accel_accumulate_begin(state, &training->prepared, 1, &scope));
      CHECK(train_step(training, NULL));
      CHECK(accel_scope_end(scope));
    }
    if (training->step % 10 == 0) {
      accel_tensor_t* loss = NULL;
      CHECK(forward(training, &loss));
      accel_tensor_release(loss);
    }
    if ((training->step + 1) % SAVE == 0) CHECK(accel_save_state(state, path, NULL));
  }
  const holdings_t after = observe();
  printf(
      "rank %d: descriptors %d to %d, threads %d to %d, shared memory %d to %d, tensors %d to %d bytes, cached %d to "
      "%d "
      "bytes, resident %d to %d KiB, objects %d to %d\n",
      (int)accel_process_index(state), (int)before.descriptors, (int)after.descriptors, (int)before.threads,
      (int)after.threads, (int)before.shared_memory, (int)after.shared_memory, (int)before.tensor_bytes,
      (int)after.tensor_bytes, (int)before.cached_bytes, (int)after.cached_bytes, (int)before.resident_kib,
      (int)after.resident_kib, (int)before.live_objects, (int)after.live_objects);
  EXPECT(after.descriptors <= before.descriptors);
  EXPECT(after.threads <= before.threads);
  EXPECT(after.shared_memory > 0 && after.shared_memory <= before.shared_memory);
  EXPECT(after.tensor_bytes > 0 && after.tensor_bytes <= before.tensor_bytes);
  EXPECT(after.cached_bytes <= before.cached_bytes + (1 << 20));
  EXPECT(after.resident_kib <= before.resident_kib + 2048);
  EXPECT(after.live_objects <= before.live_objects);
  end(training);
}
