/* SPDX-License-Identifier: Apache-2.0 */
/* Workload bigmodel: seconds to load a Llama from a folder of safetensors into an empty model, to CPU or with its
 * layers on disk, and of its forwards. */
#define _GNU_SOURCE

#include "measure.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH 16
#define MAX_SAMPLES 64
#define MIB (1024.0 * 1024.0)

static accel_state_t *state;
static char params[64];

static void fail_system(const char *what) {
  perror(what);
  exit(1);
}

/* Drops the shards from the page cache. */
static void evict_folder(const char *folder) {
  DIR *const entries = opendir(folder);
  if (entries == NULL) fail_system(folder);
  for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
    if (entry->d_name[0] == '.') continue;
    const int file = openat(dirfd(entries), entry->d_name, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) fail_system(entry->d_name);
    close(file);
  }
  closedir(entries);
}

static double folder_bytes;
static int add_bytes(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)path, (void)place;
  if (type == FTW_F) folder_bytes += (double)status->st_size;
  return 0;
}
static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status, (void)type, (void)place;
  return remove(path);
}

static void put(accel_value_t *map, const char *path, const char *place) {
  const accel_value_t value = accel_arg_string(place);
  CHECK(accel_value_set(map, path, &value));
}

/* Everything on the CPU, or every layer on disk. */
static accel_value_t device_map(const accel_module_t *model, int on_disk) {
  accel_value_t map = ACCEL_VALUE_INIT;
  CHECK(accel_value_map(&map));
  if (!on_disk) {
    put(&map, "", "cpu");
    return map;
  }
  accel_value_t modules = ACCEL_VALUE_INIT;
  CHECK(accel_module_named_modules(model, &modules));
  for (size_t i = 0; i < accel_value_count(&modules); i++) {
    const char *const path = accel_value_key(&modules, i);
    if (strncmp(path, "model.layers.", 13) == 0 && strchr(path + 13, '.') == NULL) put(&map, path, "disk");
  }
  accel_value_dispose(&modules);
  put(&map, "model.embed_tokens", "cpu");
  put(&map, "model.norm", "cpu");
  put(&map, "model.rotary_emb", "cpu");
  put(&map, "lm_head", "cpu");
  return map;
}

static accel_module_t *load(const char *folder, int on_disk, const char *offload_folder) {
  char config[PATH_MAX];
  snprintf(config, sizeof config, "%s/config.json", folder);
  accel_scope_t *scope = NULL;
  accel_module_t *model = NULL;
  CHECK(accel_init_empty_weights_begin(ACCEL_UNSET, &scope));
  CHECK(accel_module_from_config(config, &model));
  CHECK(accel_scope_end(scope));
  accel_value_t map = device_map(model, on_disk);
  accel_dispatch_options_t options = ACCEL_DISPATCH_OPTIONS_INIT;
  options.offload_folder = offload_folder;
  CHECK(accel_load_checkpoint_and_dispatch(state, model, folder, &map, NULL, &options, NULL));
  CHECK(accel_module_train(model, 0));
  accel_value_dispose(&map);
  return model;
}

/* Seconds of a forward; `out_sum` gets the sum of the logits. */
static double forward(accel_module_t *model, accel_tensor_t *tokens, double *out_sum) {
  const accel_value_t input = accel_arg_tensor(tokens);
  accel_value_t logits = ACCEL_VALUE_INIT, sum = ACCEL_VALUE_INIT;
  const double begin = measure_now();
  CHECK(accel_module_call(model, &input, 1, &logits));
  const double seconds = measure_now() - begin;
  const accel_op_t *op = NULL;
  size_t n_results = 0;
  CHECK(accel_op_find("aten::sum", "", &op));
  CHECK(accel_op_call(op, &logits, 1, &sum, 1, &n_results));
  CHECK(accel_tensor_item(sum.as.tensor, out_sum));
  accel_value_dispose(&sum);
  accel_value_dispose(&logits);
  return seconds;
}

static void report(const char *bench, double *samples, size_t count, const char *extra) {
  const struct figure figure = {
      .bench = bench, .params = params, .unit = "s", .samples = samples, .n_samples = count, .extra = extra};
  measure_report(state, &figure);
}

int main(int argc, char **argv) {
  enum { DIR_OPTION, OFFLOAD_DIR, MODE, CACHE, REPEAT, THREADS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--dir", ""},       {"--offload-dir", "/tmp"}, {"--mode", "cpu"},
                                            {"--cache", "warm"}, {"--repeat", "5"},         {"--threads", "2"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const char *const folder = options[DIR_OPTION].value;
  const size_t repeat = (size_t)measure_integer(&options[REPEAT]);
  const int on_disk = strcmp(options[MODE].value, "disk") == 0;
  if (repeat == 0 || repeat > MAX_SAMPLES) {
    fprintf(stderr, "--repeat is %s; expected 1 to %d\n", options[REPEAT].value, MAX_SAMPLES);
    return 2;
  }
  snprintf(params, sizeof params, "{\"mode\": \"%s\", \"cache\": \"%s\"}", options[MODE].value, options[CACHE].value);

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  CHECK(accel_state_create(&settings, &state));
  const double base = measure_memory("VmHWM");
  if (strcmp(options[CACHE].value, "cold") == 0) evict_folder(folder);
  char offload[PATH_MAX], extra[128];
  snprintf(offload, sizeof offload, "%s/bench_offload_XXXXXX", options[OFFLOAD_DIR].value);
  if (mkdtemp(offload) == NULL) fail_system(offload);

  double samples[MAX_SAMPLES], sum = 0;
  const double begin = measure_now();
  accel_module_t *const model = load(folder, on_disk, offload);
  samples[0] = measure_now() - begin;
  nftw(offload, add_bytes, 16, FTW_PHYS);
  snprintf(extra, sizeof extra, "\"extra_disk_mb\": %.5g, \"rss_before_mb\": %.5g", folder_bytes / MIB, base);
  report("bigmodel_load", samples, 1, extra);

  int64_t numbers[LENGTH];
  const int64_t shape[] = {1, LENGTH};
  for (int64_t i = 0; i < LENGTH; i++) numbers[i] = i;
  accel_tensor_t *tokens = NULL;
  CHECK(accel_tensor_from_data(numbers, shape, 2, ACCEL_DTYPE_INT64, &tokens));
  accel_scope_t *no_grad = NULL;
  CHECK(accel_no_grad_begin(&no_grad));
  measure_reset_peak();
  samples[0] = forward(model, tokens, &sum);
  snprintf(extra, sizeof extra, "\"sum\": %.6g", sum);
  report("bigmodel_forward_first", samples, 1, extra);
  forward(model, tokens, &sum);
  for (size_t i = 0; i < repeat; i++) samples[i] = forward(model, tokens, &sum);
  report("bigmodel_forward", samples, repeat, extra);
  CHECK(accel_scope_end(no_grad));

  accel_tensor_release(tokens);
  accel_module_release(model);
  nftw(offload, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  accel_state_release(state);
  return 0;
}
