/* Workload collective: microseconds a call. One process of `ranks`; bench/run starts them. Prints a line for each of
 * the operations, dtypes and sizes, which are lists with commas. */
#define _POSIX_C_SOURCE 200809L

#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LIST 16

/* What the calls of one figure work on. */
struct buffers {
  accel_state_t *state;
  accel_tensor_t *shard; /* one rank's part */
  accel_tensor_t *whole; /* of all ranks, where the operation needs it */
  accel_value_t object;
};

static void call_all_reduce(struct buffers *buffers) {
  CHECK(accel_all_reduce(buffers->state, buffers->shard, ACCEL_REDUCE_SUM));
}

static void call_reduce(struct buffers *buffers) {
  const accel_value_t argument = accel_arg_tensor(buffers->shard);
  accel_value_t result = ACCEL_VALUE_INIT;
  CHECK(accel_reduce(buffers->state, &argument, ACCEL_REDUCE_SUM, 1, &result));
  accel_value_dispose(&result);
}

static void call_gather(struct buffers *buffers) {
  const accel_value_t argument = accel_arg_tensor(buffers->shard);
  accel_value_t result = ACCEL_VALUE_INIT;
  CHECK(accel_gather(buffers->state, &argument, &result));
  accel_value_dispose(&result);
}

static void call_all_gather(struct buffers *buffers) {
  CHECK(accel_all_gather(buffers->state, buffers->shard, buffers->whole));
}

static void call_reduce_scatter(struct buffers *buffers) {
  CHECK(accel_reduce_scatter(buffers->state, buffers->whole, ACCEL_REDUCE_SUM, buffers->shard));
}

static void call_broadcast(struct buffers *buffers) {
  const accel_value_t argument = accel_arg_tensor(buffers->shard);
  CHECK(accel_broadcast(buffers->state, &argument, 0));
}

static void call_gather_object(struct buffers *buffers) {
  accel_value_t result = ACCEL_VALUE_INIT;
  CHECK(accel_gather_object(buffers->state, &buffers->object, &result));
  accel_value_dispose(&result);
}

static void call_barrier(struct buffers *buffers) { CHECK(accel_wait_for_everyone(buffers->state)); }

struct operation {
  const char *name;
  void (*call)(struct buffers *buffers);
  int has_size;    /* works on tensors, else on nothing or on a small object */
  int needs_whole; /* also on a tensor of all ranks */
  double element;  /* what the tensors hold: a sum in place would overflow with ones */
};
static const struct operation operations[] = {
    {"all_reduce", call_all_reduce, 1, 0, 0},
    {"reduce", call_reduce, 1, 0, 1},
    {"gather", call_gather, 1, 0, 1},
    {"all_gather", call_all_gather, 1, 1, 1},
    {"reduce_scatter", call_reduce_scatter, 1, 1, 1},
    {"broadcast", call_broadcast, 1, 0, 1},
    {"gather_object", call_gather_object, 0, 0, 0},
    {"barrier", call_barrier, 0, 0, 0},
};

static const struct operation *find_operation(const char *name) {
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
    if (strcmp(operations[i].name, name) == 0) return &operations[i];
  fprintf(stderr, "--ops '%s': no such operation\n", name);
  exit(2);
}

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
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_tensor_t *tensor = NULL;
  CHECK(accel_tensor_from_blob(samples, &shape, 1, NULL, ACCEL_DTYPE_FLOAT64, cpu, NULL, NULL, &tensor));
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

static void run_on_tensors(const struct operation *operation, const char *dtype_name, int64_t bytes,
                           struct buffers *buffers, struct figure *figure) {
  char params[256], extra[64];
  accel_dtype_t dtype = 0;
  CHECK(accel_dtype_from_name(dtype_name, &dtype));
  const int32_t ranks = accel_num_processes(buffers->state);
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int64_t count = bytes / (int64_t)accel_dtype_size(dtype), whole_count = ranks * count;
  measure_reset_peak();
  CHECK(accel_tensor_full(&count, 1, operation->element, dtype, cpu, &buffers->shard));
  if (operation->needs_whole)
    CHECK(accel_tensor_full(&whole_count, 1, operation->element, dtype, cpu, &buffers->whole));
  measure_calls(operation, buffers, bytes, figure);
  const double median = measure_median(figure->samples, figure->n_samples);
  snprintf(params, sizeof params, "{\"op\": \"%s\", \"procs\": %d, \"dtype\": \"%s\", \"bytes\": %lld}",
           operation->name, ranks, dtype_name, (long long)bytes);
  snprintf(extra, sizeof extra, "\"gb_per_s\": %.5g", (double)bytes / median / 1e3);
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
    if (!operation->has_size) {
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
