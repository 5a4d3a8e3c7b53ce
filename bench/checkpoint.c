/* SPDX-License-Identifier: Apache-2.0 */
/* Workload checkpoint: seconds to save and load a training state and a model, beside those of plain reads and writes of
 * as many bytes; what an asynchronous save costs the training; and what Zstd makes of weights and moments. */
#define _GNU_SOURCE

#include "measure.h"
#include "training.h"
#include "workloads.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WIDTH 1024
#define TENSOR_BYTES ((size_t)WIDTH * WIDTH * 4)
#define BLOCK ((size_t)16 << 20)
#define MAX_SAMPLES 64
#define MAX_STEPS 4096
#define PATH_SIZE 512

static accel_state_t *state;
static int64_t n_tensors;
static size_t n_samples;
static double base_rss_mb; /* when the part began */
static char folder[PATH_SIZE];

static void fail_system(const char *what) {
  perror(what);
  exit(1);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status, (void)type, (void)place;
  return remove(path);
}

static void remove_folder(void) { nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

static void empty_folder(void) {
  remove_folder();
  if (mkdir(folder, 0777) != 0) fail_system(folder);
}

static int evict_entry(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status, (void)place;
  if (type != FTW_F) return 0;
  const int file = open(path, O_RDONLY);
  if (file < 0 || fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) fail_system(path);
  return close(file);
}

/* Drops the files from the page cache. */
static void evict_files(void) { nftw(folder, evict_entry, 16, FTW_PHYS); }

static const char *path_in(const char *name) {
  static char path[PATH_SIZE + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void begin_peak(void) {
  measure_reset_peak();
  base_rss_mb = measure_memory("VmRSS");
}

static void report(const char *part, const char *unit, double *samples, size_t count, size_t bytes, const char *more) {
  char params[160], extra[256];
  snprintf(params, sizeof params, "{\"part\": \"%s\", \"tensors\": %lld, \"shape\": [%d, %d]}", part,
           (long long)n_tensors, WIDTH, WIDTH);
  const double median = measure_median(samples, count);
  snprintf(extra, sizeof extra, "\"bytes\": %zu, \"gb_per_s\": %.4g, \"anonymous_rss_mb\": %.5g%s%s", bytes,
           (double)bytes / median / 1e9 * (strcmp(unit, "ms") == 0 ? 1e3 : 1), measure_memory("RssAnon"),
           more == NULL ? "" : ", ", more == NULL ? "" : more);
  const struct figure figure = {.bench = "checkpoint",
                                .params = params,
                                .unit = unit,
                                .samples = samples,
                                .n_samples = count,
                                .base_rss_mb = base_rss_mb,
                                .extra = extra};
  measure_report(state, &figure);
}

/* One linear layer after the other, and what AdamW keeps of them after a step. */
struct job {
  accel_module_t *model;
  accel_optimizer_t *optimizer;
};

static accel_module_t *linear_layers(int64_t count) {
  accel_module_t **const layers = measure_allocate((size_t)count * sizeof *layers), *model = NULL;
  for (int64_t i = 0; i < count; i++) CHECK(accel_module_linear(WIDTH, WIDTH, 0, &layers[i]));
  CHECK(accel_module_sequential(layers, (size_t)count, &model));
  for (int64_t i = 0; i < count; i++) accel_module_release(layers[i]);
  free(layers);
  return model;
}

static void job_make(struct job *job) {
  accel_module_t *const model = linear_layers(n_tensors);
  accel_optimizer_t *adamw = NULL;
  CHECK(accel_optimizer_adamw(model, NULL, &adamw));
  CHECK(accel_prepare_model(state, model, NULL, &job->model));
  CHECK(accel_prepare_optimizer(state, adamw, &job->optimizer));
  accel_optimizer_release(adamw);
  accel_module_release(model);

  const int64_t shape[] = {1, WIDTH};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_tensor_t *input = NULL, *loss = NULL;
  const accel_op_t *sum = NULL;
  accel_value_t output = ACCEL_VALUE_INIT, total = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, &cpu, &input));
  const accel_value_t argument = accel_arg_tensor(input);
  CHECK(accel_module_call(job->model, &argument, 1, &output));
  CHECK(accel_op_find("aten::sum", "", &sum));
  CHECK(accel_op_call(sum, &output, 1, &total, 1, &n_results));
  loss = total.as.tensor;
  CHECK(accel_backward(state, loss, NULL));
  CHECK(accel_optimizer_step(job->optimizer));
  CHECK(accel_optimizer_zero_grad(job->optimizer, 1));
  accel_value_dispose(&total);
  accel_value_dispose(&output);
  accel_tensor_release(input);
}

/* Bytes as a training has them: the disk may not find them easy to compress. */
static char *random_block(void) {
  char *const block = measure_allocate(BLOCK);
  uint64_t number = 1;
  for (size_t i = 0; i < BLOCK; i += sizeof number) {
    number = number * 6364136223846793005U + 1442695040888963407U;
    memcpy(block + i, &number, sizeof number);
  }
  return block;
}

static void raw_parts(size_t bytes) {
  double written[MAX_SAMPLES], durable[MAX_SAMPLES], cold[MAX_SAMPLES], warm[MAX_SAMPLES];
  char *const block = random_block();
  begin_peak();
  empty_folder();
  for (size_t sample = 0; sample < n_samples; sample++) {
    unlink(path_in("raw"));
    const double start = measure_now();
    const int file = open(path_in("raw"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (size_t done = 0; done < bytes; done += BLOCK)
      if (write(file, block, BLOCK) != (ssize_t)BLOCK) fail_system("write");
    written[sample] = measure_now() - start;
    if (fsync(file) != 0) fail_system("fsync");
    durable[sample] = measure_now() - start;
    close(file);
  }
  for (size_t sample = 0; sample < 2 * n_samples; sample++) {
    const int is_warm = sample % 2 == 1;
    if (!is_warm) evict_files();
    const double start = measure_now();
    const int file = open(path_in("raw"), O_RDONLY);
    while (read(file, block, BLOCK) > 0) continue;
    close(file);
    (is_warm ? warm : cold)[sample / 2] = measure_now() - start;
  }
  report("raw_write", "s", written, n_samples, bytes, NULL);
  report("raw_write_durable", "s", durable, n_samples, bytes, NULL);
  report("raw_read_cold", "s", cold, n_samples, bytes, NULL);
  report("raw_read_warm", "s", warm, n_samples, bytes, NULL);
  free(block);
  remove_folder();
}

static void state_parts(size_t bytes) {
  double saved[2][MAX_SAMPLES], cold[MAX_SAMPLES], warm[MAX_SAMPLES];
  begin_peak();
  for (size_t sample = 0; sample < 2 * n_samples; sample++) {
    accel_save_state_options_t options = ACCEL_SAVE_STATE_OPTIONS_INIT;
    options.durable = sample % 2 == 1;
    remove_folder();
    const double start = measure_now();
    CHECK(accel_save_state(state, folder, &options));
    saved[sample % 2][sample / 2] = measure_now() - start;
  }
  report("save_state", "s", saved[0], n_samples, bytes, NULL);
  report("save_state_durable", "s", saved[1], n_samples, bytes, NULL);
  begin_peak();
  for (size_t sample = 0; sample < 2 * n_samples; sample++) {
    const int is_warm = sample % 2 == 1;
    if (!is_warm) evict_files();
    const double start = measure_now();
    CHECK(accel_load_state(state, folder, NULL));
    (is_warm ? warm : cold)[sample / 2] = measure_now() - start;
  }
  report("load_state_cold", "s", cold, n_samples, bytes, NULL);
  report("load_state_warm", "s", warm, n_samples, bytes, NULL);
  remove_folder();
}

static void model_parts(const struct job *job, size_t bytes) {
  double saved[MAX_SAMPLES], first[MAX_SAMPLES];
  begin_peak();
  for (size_t sample = 0; sample < n_samples; sample++) {
    empty_folder();
    const double start = measure_now();
    CHECK(accel_save_model(state, job->model, folder, NULL));
    saved[sample] = measure_now() - start;
  }
  report("save_model_durable", "s", saved, n_samples, bytes, NULL);
  begin_peak();
  for (size_t sample = 0; sample < n_samples; sample++) {
    accel_value_t loaded = ACCEL_VALUE_INIT;
    void *data = NULL;
    const double start = measure_now();
    CHECK(accel_load(path_in("model.safetensors"), NULL, &loaded));
    CHECK(accel_tensor_data(accel_value_at(&loaded, 0)->as.tensor, &data));
    const volatile float number = *(const float *)data;
    (void)number;
    first[sample] = 1e3 * (measure_now() - start);
    accel_value_dispose(&loaded);
  }
  report("load_until_first_tensor", "ms", first, n_samples, bytes, NULL);
  remove_folder();
}

/* The bandwidth of memcpy() between memory that is there, on one thread. */
static double memcpy_seconds(size_t bytes) {
  const size_t part = (size_t)256 << 20;
  char *const from = measure_allocate(part), *const to = measure_allocate(part);
  memset(from, 1, part);
  memset(to, 1, part);
  double seconds[5];
  for (size_t i = 0; i < 5; i++) {
    const double start = measure_now();
    memcpy(to, from, part);
    seconds[i] = measure_now() - start;
  }
  free(from);
  free(to);
  return measure_median(seconds, 5) * (double)bytes / (double)part;
}

static void save_asynchronously(void) {
  accel_save_state_options_t options = ACCEL_SAVE_STATE_OPTIONS_INIT;
  options.asynchronous = 1;
  CHECK(accel_save_state(state, folder, &options));
}

static int is_saving(void) {
  int64_t written = 0, total = 0;
  CHECK(accel_checkpoint_progress(state, &written, &total));
  return written < total;
}

/* How long the call takes; then how long steps of train_gpt take, each beside an idle and beside a busy writer. */
static void asynchronous_parts(size_t bytes) {
  static double alone[MAX_STEPS], beside[MAX_STEPS];
  double stall[MAX_SAMPLES];
  size_t n_alone = 0, n_beside = 0;
  struct training training = {0};
  char more[128];
  workload_gpt(&training, state, 600);
  training_run(&training, GPT_WARMUP, 1, alone);
  begin_peak();
  for (size_t sample = 0; sample < n_samples; sample++) {
    for (int step = 0; step < 8; step++) training_run(&training, 0, 1, &alone[n_alone++]);
    remove_folder();
    const double start = measure_now();
    save_asynchronously();
    stall[sample] = measure_now() - start;
    while (is_saving() && n_beside < MAX_STEPS) training_run(&training, 0, 1, &beside[n_beside++]);
    CHECK(accel_checkpoint_wait(state, 600000));
  }
  const double first = stall[0], memcpy_time = memcpy_seconds(bytes);
  snprintf(more, sizeof more, "\"first\": %.4g, \"memcpy_s\": %.4g, \"of_memcpy\": %.4g", first, memcpy_time,
           measure_median(stall, n_samples) / memcpy_time);
  report("save_state_asynchronous", "s", stall, n_samples, bytes, more);
  snprintf(more, sizeof more, "\"slowdown_percent\": %.3g, \"steps\": %zu",
           100 * (measure_median(beside, n_beside) / measure_median(alone, n_alone) - 1), n_beside);
  report("step_beside_a_save", "s", beside, n_beside, 0, more);
  report("step_alone", "s", alone, n_alone, 0, NULL);
  training_release(&training);
  remove_folder();
}

static size_t model_and_optimizer_bytes;

static int add_size(const char *path, const struct stat *status, int type, struct FTW *place) {
  const char *const name = path + place->base;
  const int counts = strncmp(name, "model.", 6) == 0 || strncmp(name, "optimizer.", 10) == 0;
  if (type == FTW_F && counts) model_and_optimizer_bytes += (size_t)status->st_size;
  return 0;
}

/* Saves with Zstd's level and returns the bytes of the files of models and optimizers. */
static size_t save_compressed(accel_state_t *saved, int32_t level, double *seconds) {
  accel_save_state_options_t options = ACCEL_SAVE_STATE_OPTIONS_INIT;
  options.compression_level = level;
  options.durable = 0;
  remove_folder();
  const double start = measure_now();
  CHECK(accel_save_state(saved, folder, &options));
  *seconds = measure_now() - start;
  model_and_optimizer_bytes = 0;
  nftw(folder, add_size, 16, FTW_PHYS);
  return model_and_optimizer_bytes;
}

static void report_compressed(accel_state_t *saved, const char *what) {
  double written[MAX_SAMPLES], read[MAX_SAMPLES];
  char part[64], more[64];
  const size_t bytes = save_compressed(saved, 0, &written[0]);
  size_t compressed = 0;
  begin_peak();
  for (size_t sample = 0; sample < n_samples; sample++) {
    compressed = save_compressed(saved, 1, &written[sample]);
    const double start = measure_now();
    CHECK(accel_load_state(saved, folder, NULL));
    read[sample] = measure_now() - start;
  }
  snprintf(more, sizeof more, "\"ratio\": %.4g", (double)bytes / (double)compressed);
  snprintf(part, sizeof part, "save_zstd_%s", what);
  report(part, "s", written, n_samples, bytes, more);
  snprintf(part, sizeof part, "load_zstd_%s", what);
  report(part, "s", read, n_samples, bytes, NULL);
  remove_folder();
}

/* A hook: models are neither saved nor loaded. */
static accel_status_t leave_models_out(const accel_value_t *models, const char *path, accel_value_t *out_models,
                                       void *unused) {
  const accel_value_t none = ACCEL_VALUE_INIT;
  (void)path, (void)unused;
  CHECK(accel_value_list(NULL, 0, out_models));
  for (size_t i = 0; i < accel_value_count(models); i++) CHECK(accel_value_push(out_models, &none));
  return ACCEL_OK;
}

/* Weights as they begin, in bf16; and what AdamW keeps in fp32 of a GPT that has been trained for some steps. */
static void compressed_parts(void) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  static double seconds[20];
  accel_state_t *of_weights = workload_state("cpu", "no", 1), *of_moments = workload_state("cpu", "no", GPT_ACCUMULATE);
  accel_module_t *const model = linear_layers(64), *prepared = NULL;
  struct training training;
  CHECK(accel_module_to(model, ACCEL_DTYPE_BFLOAT16, &cpu));
  CHECK(accel_prepare_model(of_weights, model, NULL, &prepared));
  report_compressed(of_weights, "bf16_weights");
  accel_module_release(prepared);
  accel_module_release(model);
  accel_state_release(of_weights);

  workload_gpt(&training, of_moments, 20);
  training_run(&training, 0, 20, seconds);
  CHECK(accel_register_save_state_pre_hook(of_moments, leave_models_out, NULL, NULL, NULL));
  CHECK(accel_register_load_state_pre_hook(of_moments, leave_models_out, NULL, NULL, NULL));
  report_compressed(of_moments, "fp32_moments");
  training_release(&training);
  accel_state_release(of_moments);
}

int main(int argc, char **argv) {
  struct option_value options[] = {
      {"--tensors", "256"}, {"--parts", "raw,state,model"}, {"--dir", "."}, {"--samples", "3"}};
  measure_begin(argc, argv, options, sizeof options / sizeof options[0]);
  n_tensors = measure_integer(&options[0]);
  n_samples = (size_t)measure_integer(&options[3]);
  if (n_samples < 1 || n_samples > MAX_SAMPLES) {
    fprintf(stderr, "--samples %s: expected 1 to %d\n", options[3].value, MAX_SAMPLES);
    return 2;
  }
  snprintf(folder, sizeof folder, "%s/checkpoint-%d", options[2].value, (int)getpid());
  const char *const parts = options[1].value;
  const size_t model_bytes = (size_t)n_tensors * TENSOR_BYTES;
  state = workload_state("cpu", "no", strstr(parts, "async") != NULL ? GPT_ACCUMULATE : 1);
  struct job job = {NULL, NULL};
  if (strcmp(parts, "zstd") != 0) job_make(&job);
  if (strstr(parts, "raw") != NULL) raw_parts(3 * model_bytes);
  if (strstr(parts, "state") != NULL) state_parts(3 * model_bytes);
  if (strstr(parts, "model") != NULL) model_parts(&job, model_bytes);
  if (strstr(parts, "async") != NULL) asynchronous_parts(3 * model_bytes);
  if (strstr(parts, "zstd") != NULL) compressed_parts();
  accel_optimizer_release(job.optimizer);
  accel_module_release(job.model);
  accel_state_release(state);
  return 0;
}
