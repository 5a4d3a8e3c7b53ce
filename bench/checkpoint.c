/* Workload checkpoint: seconds to save and to load a model of linear layers and its AdamW, against the disk itself; what an
 * asynchronous save costs the training. */
#define _POSIX_C_SOURCE 200809L
#include "measure.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WIDTH 1024
#define BLOCK (16u << 20)
#define MOST_SAMPLES 64
#define PATH_BYTES 4096

struct run {
  accel_state_t *state;
  accel_module_t *model;
  accel_optimizer_t *optimizer;
  size_t tensors, repeat;
  double base_rss_mb;
  char folder[PATH_BYTES]; /* of the checkpoint */
  char file[PATH_BYTES];   /* of the raw figures */
};

static double model_bytes(const struct run *run) { return (double)run->tensors * WIDTH * WIDTH * 4; }

static void report(const struct run *run, const char *part, double bytes, double *samples, const char *more) {
  char params[160], extra[320], sorted[MOST_SAMPLES * sizeof(double)];
  memcpy(sorted, samples, run->repeat * sizeof(double));
  const double median = measure_median((double *)(void *)sorted, run->repeat);
  snprintf(params, sizeof params, "{\"part\": \"%s\", \"tensors\": %zu, \"shape\": [%d, %d]}", part, run->tensors, WIDTH,
           WIDTH);
  snprintf(extra, sizeof extra, "\"bytes\": %.0f, \"gb_per_s\": %.3g%s%s", bytes, bytes / median / 1e9,
           more == NULL ? "" : ", ", more == NULL ? "" : more);
  const struct figure figure = {"checkpoint", params, "s", 0, samples, run->repeat, run->base_rss_mb, extra};
  measure_report(run->state, &figure);
}

static void must(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

/* Files of the checkpoint, as its manifest lists them; then their removal, or that of their pages. */
enum treatment { REMOVE, EVICT };
static void treat_file(const char *path, enum treatment treatment) {
  if (treatment == REMOVE) {
    unlink(path);
    return;
  }
  const int descriptor = open(path, O_RDONLY);
  if (descriptor < 0) return;
  fsync(descriptor);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  close(descriptor);
}

static void treat_files(const struct run *run, enum treatment treatment) {
  static const char *const names[] = {"model.safetensors",   "optimizer.bin",    "model.ztensors",      "optimizer.ztensors",
                                      "random_states_0.pkl", "accel_rank_0.bin", "accel_manifest.json"};
  char path[PATH_BYTES + 64];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(path, sizeof path, "%s/%s", run->folder, names[i]);
    treat_file(path, treatment);
  }
  treat_file(run->file, treatment);
  if (treatment == REMOVE) rmdir(run->folder);
}

static void make_model(struct run *run) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int64_t shape[] = {WIDTH, WIDTH};
  accel_adam_options_t adamw = ACCEL_ADAM_OPTIONS_INIT;
  accel_module_t *model = NULL;
  accel_optimizer_t *optimizer = NULL;
  const accel_op_t *sum = NULL;
  CHECK(accel_op_find("aten::sum", "", &sum));
  CHECK(accel_module_create("Layers", &model));
  for (size_t i = 0; i < run->tensors; i++) {
    accel_tensor_t *weight = NULL;
    char name[32];
    snprintf(name, sizeof name, "weight_%zu", i);
    CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, cpu, &weight));
    CHECK(accel_module_add_parameter(model, name, weight, 1));
    accel_value_t total = ACCEL_VALUE_INIT;
    size_t n_results = 0;
    const accel_value_t terms = accel_arg_tensor(weight);
    CHECK(accel_op_call(sum, &terms, 1, &total, 1, &n_results));
    CHECK(accel_tensor_backward(total.as.tensor, NULL));
    accel_value_dispose(&total);
    accel_tensor_release(weight);
  }
  adamw.lr = 1e-3;
  CHECK(accel_optimizer_adamw(model, &adamw, &optimizer));
  CHECK(accel_prepare_model(run->state, model, NULL, &run->model));
  CHECK(accel_prepare_optimizer(run->state, optimizer, &run->optimizer));
  CHECK(accel_optimizer_step(run->optimizer));
  CHECK(accel_optimizer_zero_grad(run->optimizer, 1));
  accel_optimizer_release(optimizer);
  accel_module_release(model);
}

static void measure_disk(struct run *run) {
  const double bytes = 3 * model_bytes(run);
  double written[MOST_SAMPLES], durable[MOST_SAMPLES], cold[MOST_SAMPLES], warm[MOST_SAMPLES];
  char *const block = measure_allocate(BLOCK);
  for (size_t i = 0; i < BLOCK; i++) block[i] = (char)(i * 2654435761u >> 13);
  for (size_t sample = 0; sample < run->repeat; sample++) {
    treat_files(run, REMOVE);
    const double start = measure_now();
    const int file = open(run->file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    must(file >= 0, run->file);
    for (double done = 0; done < bytes; done += BLOCK) must(write(file, block, BLOCK) == (ssize_t)BLOCK, "write");
    written[sample] = measure_now() - start;
    must(fsync(file) == 0, "fsync");
    durable[sample] = measure_now() - start;
    close(file);
    for (int is_warm = 0; is_warm < 2; is_warm++) {
      if (!is_warm) treat_files(run, EVICT);
      const double begin = measure_now();
      const int in = open(run->file, O_RDONLY);
      while (read(in, block, BLOCK) > 0) continue;
      close(in);
      (is_warm ? warm : cold)[sample] = measure_now() - begin;
    }
  }
  report(run, "raw_write", bytes, written, NULL);
  report(run, "raw_write_durable", bytes, durable, NULL);
  report(run, "raw_read_cold", bytes, cold, NULL);
  report(run, "raw_read_warm", bytes, warm, NULL);
  free(block);
  treat_files(run, REMOVE);
}

/* The memory beyond what the program had, in MiB: of its own pages, not of mapped files. */
static void memory_note(char *note, size_t size, double before) {
  snprintf(note, size, "\"peak_rss_mb\": %.1f, \"rss_before_mb\": %.1f", measure_memory("VmHWM"), before);
}

static void measure_save(struct run *run, const char *part, int durable, int32_t compression_level) {
  double samples[MOST_SAMPLES];
  char note[160];
  accel_save_state_options_t options = ACCEL_SAVE_STATE_OPTIONS_INIT;
  options.durable = durable;
  options.compression_level = compression_level;
  double before = 0;
  for (size_t sample = 0; sample < run->repeat; sample++) {
    treat_files(run, REMOVE);
    measure_reset_peak();
    before = measure_memory("VmRSS");
    const double start = measure_now();
    CHECK(accel_save_state(run->state, run->folder, &options));
    samples[sample] = measure_now() - start;
  }
  memory_note(note, sizeof note, before);
  report(run, part, 3 * model_bytes(run), samples, note);
}

static void measure_load(struct run *run, const char *part, int evicts) {
  double samples[MOST_SAMPLES];
  char note[160];
  double before = 0;
  for (size_t sample = 0; sample < run->repeat; sample++) {
    if (evicts) treat_files(run, EVICT);
    measure_reset_peak();
    before = measure_memory("VmRSS");
    const double start = measure_now();
    CHECK(accel_load_state(run->state, run->folder, NULL));
    samples[sample] = measure_now() - start;
  }
  memory_note(note, sizeof note, before);
  report(run, part, 3 * model_bytes(run), samples, note);
}

/* A file of the model: until its first tensor can be used. */
static void measure_first_tensor(struct run *run) {
  double samples[MOST_SAMPLES];
  char path[PATH_BYTES + 64];
  snprintf(path, sizeof path, "%s/model.safetensors", run->folder);
  for (size_t sample = 0; sample < run->repeat; sample++) {
    accel_value_t tensors = ACCEL_VALUE_INIT;
    void *data = NULL;
    const double start = measure_now();
    CHECK(accel_load(path, &tensors));
    const accel_value_t *const first = accel_value_get(&tensors, "weight_0");
    CHECK(accel_tensor_data(first->as.tensor, &data));
    volatile float number = ((const float *)data)[0];
    (void)number;
    samples[sample] = measure_now() - start;
    accel_value_dispose(&tensors);
  }
  report(run, "first_tensor", model_bytes(run), samples, NULL);
}

/* A step that keeps the processor busy: products of matrices. */
static double take_step(const accel_op_t *mm, const accel_value_t *factors) {
  const double start = measure_now();
  for (int i = 0; i < 8; i++) {
    accel_value_t product = ACCEL_VALUE_INIT;
    size_t n_results = 0;
    CHECK(accel_op_call(mm, factors, 2, &product, 1, &n_results));
    accel_value_dispose(&product);
  }
  return measure_now() - start;
}

static double copy_seconds(size_t bytes) {
  char *const from = measure_allocate(bytes), *const to = measure_allocate(bytes);
  memset(from, 1, bytes);
  memset(to, 1, bytes);
  const double start = measure_now();
  memcpy(to, from, bytes);
  const double seconds = measure_now() - start;
  free(from);
  free(to);
  return seconds;
}

static void measure_asynchronous(struct run *run) {
  enum { STEPS = 60, MOST_STEPS = 4096 };
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int64_t shape[] = {WIDTH, WIDTH};
  const accel_op_t *mm = NULL;
  accel_tensor_t *matrix = NULL;
  CHECK(accel_op_find("aten::mm", "", &mm));
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, cpu, &matrix));
  const accel_value_t factors[] = {accel_arg_tensor(matrix), accel_arg_tensor(matrix)};
  accel_save_state_options_t options = ACCEL_SAVE_STATE_OPTIONS_INIT;
  options.asynchronous = 1;
  double stalls[MOST_SAMPLES], *const alone = measure_allocate(STEPS * sizeof(double)),
                               *const beside = measure_allocate(MOST_STEPS * sizeof(double));
  const double bytes = 3 * model_bytes(run), sample_bytes = 256u << 20;
  double slowdown = 0, first_stall = 0;
  for (size_t sample = 0; sample <= run->repeat; sample++) { /* the first save touches its memory for the first time */
    treat_files(run, REMOVE);
    for (int i = 0; i < STEPS; i++) alone[i] = take_step(mm, factors);
    const double start = measure_now();
    CHECK(accel_save_state(run->state, run->folder, &options));
    const double stall = measure_now() - start;
    size_t steps = 0;
    int64_t written = 0, total = 0;
    while (steps < MOST_STEPS && accel_checkpoint_progress(run->state, &written, &total) == ACCEL_IN_PROGRESS)
      beside[steps++] = take_step(mm, factors);
    CHECK(accel_checkpoint_wait(run->state, 600000));
    if (sample == 0) {
      first_stall = stall;
      continue;
    }
    stalls[sample - 1] = stall;
    double all_alone = 0, all_beside = 0;
    for (int i = 0; i < STEPS; i++) all_alone += alone[i] / STEPS;
    for (size_t i = 0; i < steps; i++) all_beside += beside[i] / (double)steps;
    if (steps > 0) slowdown += all_beside / all_alone / (double)run->repeat;
  }
  char note[160];
  snprintf(note, sizeof note, "\"memcpy_s\": %.4g, \"first_save_s\": %.4g, \"step_ratio\": %.4g",
           copy_seconds((size_t)sample_bytes) * bytes / sample_bytes, first_stall, slowdown);
  report(run, "asynchronous_stall", bytes, stalls, note);
  accel_tensor_release(matrix);
  free(alone);
  free(beside);
}

int main(int argc, char **argv) {
  enum { TENSORS, REPEAT, PARTS, DIR, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--tensors", "256"}, {"--repeat", "3"}, {"--parts", "raw,state,first_tensor,asynchronous,compressed"}, {"--dir", "."}};
  measure_begin(argc, argv, options, N_OPTIONS);
  struct run run;
  memset(&run, 0, sizeof run);
  run.tensors = (size_t)measure_integer(&options[TENSORS]);
  run.repeat = (size_t)measure_integer(&options[REPEAT]);
  if (run.repeat < 1 || run.repeat > MOST_SAMPLES) {
    fprintf(stderr, "--repeat is %zu; expected 1 to %d\n", run.repeat, MOST_SAMPLES);
    return 2;
  }
  snprintf(run.folder, sizeof run.folder, "%s/checkpoint", options[DIR].value);
  snprintf(run.file, sizeof run.file, "%s/raw.bin", options[DIR].value);
  const char *const parts = options[PARTS].value;

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  CHECK(accel_state_create(&settings, &run.state));
  run.base_rss_mb = measure_memory("VmHWM");
  make_model(&run);
  if (strstr(parts, "raw") != NULL) measure_disk(&run);
  if (strstr(parts, "state") != NULL) {
    measure_save(&run, "save_state", 0, 0);
    measure_save(&run, "save_state_durable", 1, 0);
    measure_load(&run, "load_state_cold", 1);
    measure_load(&run, "load_state_warm", 0);
  }
  if (strstr(parts, "first_tensor") != NULL) {
    measure_save(&run, "save_state_durable", 1, 0);
    measure_first_tensor(&run);
  }
  if (strstr(parts, "asynchronous") != NULL) measure_asynchronous(&run);
  if (strstr(parts, "compressed") != NULL) {
    measure_save(&run, "save_state_compressed", 1, 1);
    measure_load(&run, "load_state_compressed", 0);
  }
  treat_files(&run, REMOVE);
  accel_optimizer_release(run.optimizer);
  accel_module_release(run.model);
  accel_state_release(run.state);
  return 0;
}
