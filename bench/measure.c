/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L

#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* When the workload began: others_cpu is counted from there. */
static struct { double time, machine_busy, own_busy; } begin;

accel_status_t measure_check(accel_status_t status, const char *call) {
  if (status < 0) {
    fprintf(stderr, "%s\n  in %s\n", accel_last_error(), call);
    exit(EXIT_FAILURE);
  }
  return status;
}

void *measure_allocate(size_t size) {
  void *memory = calloc(1, size);
  if (memory == NULL) {
    fprintf(stderr, "no memory for %zu bytes\n", size);
    exit(EXIT_FAILURE);
  }
  return memory;
}

double measure_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Processor seconds of all processes; interrupts are left out, for loopback traffic is booked there. */
static double machine_busy(void) {
  unsigned long long user = 0, nice = 0, system = 0;
  FILE *file = fopen("/proc/stat", "r");
  if (file == NULL) return 0;
  const int read = fscanf(file, "cpu %llu %llu %llu", &user, &nice, &system);
  fclose(file);
  return read == 3 ? (double)(user + nice + system) / (double)sysconf(_SC_CLK_TCK) : 0;
}

double measure_processor(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

void measure_begin(int argc, char **argv, struct option_value *options, size_t n_options) {
  begin.time = measure_now();
  begin.machine_busy = machine_busy();
  begin.own_busy = measure_processor();
  for (int i = 1; i < argc; i += 2) {
    struct option_value *option = NULL;
    for (size_t known = 0; known < n_options; known++)
      if (strcmp(argv[i], options[known].name) == 0) option = &options[known];
    if (option == NULL || i + 1 == argc) {
      fprintf(stderr, "%s: %s\n", argv[i], option == NULL ? "no such option" : "a value must follow");
      exit(2);
    }
    option->value = argv[i + 1];
  }
}

int64_t measure_integer(const struct option_value *option) {
  char *end = NULL;
  const long long number = strtoll(option->value, &end, 10);
  if (*option->value == '\0' || *end != '\0' || number < 0) {
    fprintf(stderr, "%s '%s': expected a number that is not negative\n", option->name, option->value);
    exit(2);
  }
  return number;
}

accel_state_t *measure_state(accel_state_options_t options, const char *device) {
  accel_state_t *state = NULL;
  options.torch_device = device;
  CHECK(accel_state_create(&options, &state));
  return state;
}

void measure_wait(const accel_state_t *state) { CHECK(accel_device_synchronize(accel_device(state))); }

double measure_memory(const char *field) {
  char line[256];
  double mebibytes = 0;
  const size_t length = strlen(field);
  FILE *file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, field, length) == 0 && line[length] == ':') mebibytes = strtod(line + length + 1, NULL) / 1024;
  if (file != NULL) fclose(file);
  return mebibytes;
}

void measure_reset_peak(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (file == NULL) return;
  fputc('5', file);
  fclose(file);
}

static int compare_numbers(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

double measure_median(double *samples, size_t n_samples) {
  qsort(samples, n_samples, sizeof *samples, compare_numbers);
  return (samples[(n_samples - 1) / 2] + samples[n_samples / 2]) / 2;
}

/* What each rank says of itself. */
enum { PEAK, BUSY, FACTS };

/* The bytes that a rank of `size` receives of what the operation moves, by its bytes in the flight record. */
static double received_of(const char *operation, double bytes, int size) {
  if (strncmp(operation, "all_reduce\"", 11) == 0) return bytes * 2 * (size - 1) / size;
  if (strncmp(operation, "all_gather\"", 11) == 0) return bytes * (size - 1);
  if (strncmp(operation, "reduce_scatter\"", 15) == 0) return bytes * (size - 1) / size;
  if (strncmp(operation, "recv\"", 5) == 0) return bytes;
  return 0;
}

double measure_received(accel_state_t *state, const char *axis) {
  accel_mesh_t *mesh = NULL;
  accel_state_t *group = NULL;
  accel_buffer_t record = ACCEL_BUFFER_INIT;
  double received = 0;
  CHECK(accel_state_mesh(state, &mesh));
  CHECK(accel_mesh_group(mesh, axis, &group));
  CHECK(accel_flight_record(group, &record));
  static const char operation_key[] = "\"operation\":\"", bytes_key[] = "\"bytes\":";
  const char *at = record.data;
  while ((at = strstr(at, operation_key)) != NULL) {
    const char *const operation = at + sizeof operation_key - 1, *const bytes = strstr(operation, bytes_key);
    if (bytes == NULL) break;
    received += received_of(operation, strtod(bytes + sizeof bytes_key - 1, NULL), accel_num_processes(group));
    at = bytes;
  }
  accel_buffer_dispose(&record);
  accel_state_release(group);
  accel_mesh_release(mesh);
  return received;
}

double measure_sum(accel_state_t *state, double number) {
  const int64_t shape[] = {1};
  accel_tensor_t *mine = NULL;
  accel_value_t sum = ACCEL_VALUE_INIT;
  CHECK(accel_tensor_from_data(&number, shape, 1, ACCEL_DTYPE_FLOAT64, &mine));
  const accel_value_t argument = accel_arg_tensor(mine);
  CHECK(accel_reduce(state, &argument, ACCEL_REDUCE_SUM, 1, &sum));
  CHECK(accel_tensor_item(sum.as.tensor, &number));
  accel_value_dispose(&sum);
  accel_tensor_release(mine);
  return number;
}

/* The facts of all ranks, rank by rank. */
static accel_tensor_t *gather_facts(accel_state_t *state) {
  const double facts[FACTS] = {measure_memory("VmHWM"), measure_processor() - begin.own_busy};
  const int64_t shape[] = {1, FACTS};
  accel_tensor_t *mine = NULL;
  accel_value_t all = ACCEL_VALUE_INIT;
  CHECK(accel_tensor_from_data(facts, shape, 2, ACCEL_DTYPE_FLOAT64, &mine));
  const accel_value_t argument = accel_arg_tensor(mine);
  CHECK(accel_gather(state, &argument, &all));
  accel_tensor_release(mine);
  return all.as.tensor;
}

void measure_report(accel_state_t *state, const struct figure *figure) {
  const int32_t ranks = accel_num_processes(state);
  accel_tensor_t *gathered = gather_facts(state);
  if (!accel_is_main_process(state)) {
    accel_tensor_release(gathered);
    return;
  }
  void *data = NULL;
  CHECK(accel_tensor_data(gathered, &data));
  const double *facts = data;
  double peak = 0, busy = 0;
  for (int32_t rank = 0; rank < ranks; rank++) {
    peak = fmax(peak, facts[rank * FACTS + PEAK]);
    busy += facts[rank * FACTS + BUSY];
  }
  const double others = (machine_busy() - begin.machine_busy - busy) / (measure_now() - begin.time);

  const double median = measure_median(figure->samples, figure->n_samples);
  double sum = 0;
  for (size_t i = 0; i < figure->n_samples; i++) sum += figure->samples[i];
  printf(
      "{\"bench\": \"%s\", \"params\": %s, \"value\": %.5g, \"min\": %.5g, \"max\": %.5g, \"mean\": %.5g, \"samples\": "
      "%zu, "
      "\"unit\": \"%s\", \"higher_is_better\": %s, \"peak_rss_mb\": %.5g, \"others_cpu\": %.2f",
      figure->bench, figure->params, median, figure->samples[0], figure->samples[figure->n_samples - 1],
      sum / (double)figure->n_samples, figure->n_samples, figure->unit, figure->higher_is_better ? "true" : "false",
      peak, fmax(others, 0));
  if (ranks > 1) {
    printf(", \"peak_rss_mb_per_rank\": [");
    for (int32_t rank = 0; rank < ranks; rank++) printf("%s%.5g", rank == 0 ? "" : ", ", facts[rank * FACTS + PEAK]);
    printf("]");
  }
  const accel_device_t device = *accel_device(state);
  if (device.type != ACCEL_DEVICE_CPU) printf(", \"device\": \"%s\"", accel_device_type_name(device.type));
  if (figure->base_rss_mb > 0) printf(", \"base_rss_mb\": %.5g", figure->base_rss_mb);
  printf(", \"anonymous_rss_mb\": %.5g", measure_memory("RssAnon"));
  if (figure->extra != NULL) printf(", %s", figure->extra);
  printf("}\n");
  fflush(stdout);
  accel_tensor_release(gathered);
}
