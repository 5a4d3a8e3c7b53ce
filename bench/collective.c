/* SPDX-License-Identifier: Apache-2.0 */
/* Workload collective: microseconds a call. One process of `ranks`; bench/run starts them. Prints a line for each of
 * the operations, dtypes and sizes, which are lists with commas. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective_operations.h"
#include "measure.h"

#define MAX_LIST 16

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};

/* From this size on a figure is compared with what the memory can do; below it latency counts. */
static const int64_t kLarge = 1 << 20;

/* Calls back to back in one sample. */
static int calls_per_sample(int64_t bytes) {
  if (bytes <= 4 << 10) return 200;
  if (bytes <= 256 << 10) return 50;
  if (bytes <= 4 << 20) return 8;
  return 2;
}

static double time_calls(const struct operation *operation, struct buffers *buffers, int calls) {
  const double start = measure_now();
  for (int i = 0; i < calls; i++) operation->call(buffers);
  return (measure_now() - start) / calls;
}

/* Each sample becomes that of the slowest rank. */
static void take_slowest(accel_state_t *state, double *samples, size_t n_samples) {
  const int64_t shape = (int64_t)n_samples;
  accel_tensor_t *tensor = NULL;
  CHECK(accel_tensor_from_blob(samples, &shape, 1, NULL, ACCEL_DTYPE_FLOAT64, &kCpu, NULL, NULL, &tensor));
  CHECK(accel_all_reduce(state, tensor, ACCEL_REDUCE_MAX));
  accel_tensor_release(tensor);
}

static void measure_calls(const struct operation *operation, struct buffers *buffers, int64_t bytes,
                          struct figure *figure) {
  const int calls = calls_per_sample(bytes);
  time_calls(operation, buffers, calls);
  for (size_t i = 0; i < figure->n_samples; i++) {
    CHECK(accel_wait_for_everyone(buffers->state));
    figure->samples[i] = time_calls(operation, buffers, calls) * 1e6;
  }
  take_slowest(buffers->state, figure->samples, figure->n_samples);
}

static void *data_of(accel_tensor_t *tensor) {
  void *data = NULL;
  CHECK(accel_tensor_data(tensor, &data));
  return data;
}

/* Bytes that a rank loads and stores in a microsecond while all ranks copy: twice what it copies. */
static double measure_memory_rate(accel_state_t *state, int64_t bytes, size_t n_samples) {
  accel_tensor_t *from = NULL, *to = NULL;
  double *samples = measure_allocate(n_samples * sizeof *samples);
  const int calls = calls_per_sample(bytes);
  CHECK(accel_tensor_full(&bytes, 1, 1, ACCEL_DTYPE_UINT8, &kCpu, &from));
  CHECK(accel_tensor_full(&bytes, 1, 0, ACCEL_DTYPE_UINT8, &kCpu, &to));
  for (size_t i = 0; i < n_samples; i++) {
    CHECK(accel_wait_for_everyone(state));
    const double start = measure_now();
    for (int call = 0; call < calls; call++) memcpy(data_of(to), data_of(from), (size_t)bytes);
    samples[i] = (measure_now() - start) / calls * 1e6;
  }
  take_slowest(state, samples, n_samples);
  const double median = measure_median(samples, n_samples);
  accel_tensor_release(to);
  accel_tensor_release(from);
  free(samples);
  return 2 * (double)bytes / median;
}

static void allocate(const struct operation *operation, accel_dtype_t dtype, int64_t count, struct buffers *buffers) {
  CHECK(accel_tensor_full(&count, 1, operation->element, dtype, &kCpu, &buffers->shard));
  if (operation->need == SHARD) return;
  if (operation->need == SHARD_AND_WHOLE) count *= accel_num_processes(buffers->state);
  CHECK(accel_tensor_full(&count, 1, operation->element, dtype, &kCpu, &buffers->whole));
}

static void run_on_tensors(const struct operation *operation, const char *dtype_name, int64_t bytes,
                           struct buffers *buffers, struct figure *figure) {
  char params[256], extra[256], bound[128] = "";
  accel_dtype_t dtype = 0;
  CHECK(accel_dtype_from_name(dtype_name, &dtype));
  const int32_t ranks = accel_num_processes(buffers->state);
  const int64_t count = bytes / (int64_t)accel_dtype_size(dtype);
  if (operation->need == TWO_CUT_SHARDS && count % ranks != 0) {
    fprintf(stderr, "%s: %lld bytes of %s cannot be cut for %d ranks; left out\n", operation->name, (long long)bytes,
            dtype_name, ranks);
    return;
  }
  const double rate = bytes < kLarge ? 0 : measure_memory_rate(buffers->state, bytes, figure->n_samples);
  measure_reset_peak();
  allocate(operation, dtype, count, buffers);
  measure_calls(operation, buffers, bytes, figure);

  const double median = measure_median(figure->samples, figure->n_samples), part = (double)bytes;
  const double algorithm = operation->size(ranks) * part / median / 1e3;
  if (bytes >= kLarge)
    snprintf(bound, sizeof bound, ", \"memory_gb_per_s\": %.5g, \"memory_percent\": %.3g", rate / 1e3,
             100 * operation->moved(ranks) * part / rate / median);
  snprintf(params, sizeof params, "{\"op\": \"%s\", \"procs\": %d, \"dtype\": \"%s\", \"bytes\": %lld}",
           operation->name, ranks, dtype_name, (long long)bytes);
  snprintf(extra, sizeof extra, "\"gb_per_s\": %.5g, \"algbw\": %.5g, \"busbw\": %.5g%s", part / median / 1e3,
           algorithm, algorithm * operation->bus(ranks), bound);
  figure->params = params;
  figure->extra = extra;
  measure_report(buffers->state, figure);
  accel_tensor_release(buffers->whole);
  accel_tensor_release(buffers->shard);
  buffers->whole = buffers->shard = NULL;
}

static void run_without_size(const struct operation *operation, struct buffers *buffers, struct figure *figure) {
  char params[128], object[128];
  snprintf(object, sizeof object, "{\"rank\": %d, \"loss\": 0.5, \"name\": \"metrics\", \"done\": false}",
           accel_process_index(buffers->state));
  CHECK(accel_value_from_json(object, &buffers->object));
  measure_calls(operation, buffers, 0, figure);
  snprintf(params, sizeof params, "{\"op\": \"%s\", \"procs\": %d}", operation->name,
           accel_num_processes(buffers->state));
  figure->params = params;
  figure->extra = NULL;
  measure_report(buffers->state, figure);
  accel_value_dispose(&buffers->object);
}

/* Cuts a list at its commas, in place. Returns the number of its parts. */
static size_t split(char *list, char **parts) {
  size_t count = 0;
  for (char *part = strtok(list, ","); part != NULL && count < MAX_LIST; part = strtok(NULL, ","))
    parts[count++] = part;
  return count;
}

int main(int argc, char **argv) {
  enum { OPS, DTYPES, BYTES, SAMPLES, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--ops", "all_reduce,reduce,gather,all_gather,reduce_scatter,broadcast,gather_object,barrier"},
      {"--dtypes", "fp32,bf16"},
      {"--bytes", "4,4096,262144,4194304,67108864"},
      {"--samples", "5"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  char *lists[N_OPTIONS], *parts[N_OPTIONS][MAX_LIST];
  size_t counts[N_OPTIONS];
  for (int i = OPS; i <= BYTES; i++) {
    lists[i] = strdup(options[i].value);
    counts[i] = split(lists[i], parts[i]);
  }

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  struct buffers buffers = {NULL, NULL, NULL, ACCEL_VALUE_INIT};
  CHECK(accel_state_create(&settings, &buffers.state));
  struct figure figure = {
      "collective", NULL, "us", 0, NULL, (size_t)measure_integer(&options[SAMPLES]), measure_memory("VmHWM"), NULL};
  figure.samples = measure_allocate(figure.n_samples * sizeof *figure.samples);

  for (size_t op = 0; op < counts[OPS]; op++) {
    const struct operation *operation = find_operation(parts[OPS][op]);
    if (operation->need == OBJECT_ONLY) {
      run_without_size(operation, &buffers, &figure);
      continue;
    }
    for (size_t dtype = 0; dtype < counts[DTYPES]; dtype++)
      for (size_t size = 0; size < counts[BYTES]; size++)
        run_on_tensors(operation, parts[DTYPES][dtype], strtoll(parts[BYTES][size], NULL, 10), &buffers, &figure);
  }

  CHECK(accel_end_training(buffers.state));
  accel_state_release(buffers.state);
  free(figure.samples);
  for (int i = OPS; i <= BYTES; i++) free(lists[i]);
  return 0;
}
