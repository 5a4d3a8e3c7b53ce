/* SPDX-License-Identifier: Apache-2.0 */
/* Workload dataloader: samples a second of a shuffled loader with which nothing else is done, the milliseconds from the
 * start of a loop to its first batch, and how far memory grows over epochs. One process. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 32
#define MOST_EPOCHS 10
#define FIRST_BATCHES 20

/* What is read, and over how many epochs it is measured. */
struct kind {
  const char *name;
  int64_t rows;
  int epochs;
  accel_dataset_t *(*make)(int64_t rows);
};

enum { WIDTH = 64, LONGEST = 128 };

static accel_dataset_t *make_rows(int64_t rows) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int64_t shape[] = {rows, WIDTH};
  accel_tensor_t *tensors[2] = {NULL, NULL};
  accel_dataset_t *dataset = NULL;
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, &cpu, &tensors[0]));
  CHECK(accel_tensor_randint(0, 10, shape, 1, &tensors[1]));
  CHECK(accel_dataset_tensors(tensors, 2, &dataset));
  accel_tensor_release(tensors[0]);
  accel_tensor_release(tensors[1]);
  return dataset;
}

/* Rows of 1 to LONGEST tokens, cut from one flat tensor. */
static accel_dataset_t *make_ragged(int64_t rows) {
  int64_t *const offsets = malloc((size_t)(rows + 1) * sizeof *offsets);
  accel_tensor_t *values = NULL, *cuts = NULL;
  accel_dataset_t *dataset = NULL;
  uint32_t random = 1;
  offsets[0] = 0;
  for (int64_t row = 0; row < rows; row++) {
    random = random * 1664525u + 1013904223u;
    offsets[row + 1] = offsets[row] + 1 + (int64_t)((random >> 16) % LONGEST);
  }
  const int64_t n_offsets = rows + 1;
  CHECK(accel_tensor_randint(0, 50000, &offsets[rows], 1, &values));
  CHECK(accel_tensor_from_data(offsets, &n_offsets, 1, ACCEL_DTYPE_INT64, &cuts));
  CHECK(accel_dataset_ragged(&values, 1, cuts, &dataset));
  accel_tensor_release(values);
  accel_tensor_release(cuts);
  free(offsets);
  return dataset;
}

static const struct kind kinds[] = {{"tensor", 20000, 5, make_rows}, {"ragged", 200000, 3, make_ragged}};

static const struct kind *find_kind(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
  fprintf(stderr, "--kind is %s; expected tensor or ragged\n", name);
  exit(2);
}

static double run_epoch(accel_dataloader_t *loader) {
  const double start = measure_now();
  accel_value_t batch = ACCEL_VALUE_INIT;
  while (CHECK(accel_dataloader_next(loader, &batch)) == ACCEL_OK) accel_value_dispose(&batch);
  return measure_now() - start;
}

static double time_to_first_batch(accel_dataloader_t *loader, int64_t epoch) {
  CHECK(accel_dataloader_set_epoch(loader, epoch));
  accel_value_t batch = ACCEL_VALUE_INIT;
  const double start = measure_now();
  CHECK(accel_dataloader_next(loader, &batch));
  const double seconds = measure_now() - start;
  accel_value_dispose(&batch);
  return seconds;
}

int main(int argc, char **argv) {
  enum { KIND, WORKERS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--kind", "tensor"}, {"--workers", "0"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const struct kind *const kind = find_kind(options[KIND].value);
  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&settings, &state));
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_dataset_t *dataset = kind->make(kind->rows);
  accel_dataloader_options_t loader_options = ACCEL_DATALOADER_OPTIONS_INIT;
  loader_options.batch_size = BATCH;
  loader_options.shuffle = 1;
  if (kind->make == make_ragged) loader_options.collate = ACCEL_COLLATE_PAD;
  loader_options.num_workers = measure_integer(&options[WORKERS]);
  accel_dataloader_t *plain = NULL, *loader = NULL;
  CHECK(accel_dataloader_create(dataset, &loader_options, &plain));
  CHECK(accel_prepare_data_loader(state, plain, NULL, &loader));

  char params[120], extra[64];
  snprintf(params, sizeof params, "{\"dataset\": \"%s\", \"rows\": %lld, \"batch\": %d, \"workers\": %lld}", kind->name,
           (long long)kind->rows, BATCH, (long long)loader_options.num_workers);
  run_epoch(loader);
  const double before_mb = measure_memory("VmRSS");
  double samples[MOST_EPOCHS], first[FIRST_BATCHES];
  for (int epoch = 0; epoch < kind->epochs; epoch++) samples[epoch] = (double)kind->rows / run_epoch(loader);
  for (int epoch = kind->epochs; epoch < MOST_EPOCHS; epoch++) run_epoch(loader);
  snprintf(extra, sizeof extra, "\"growth_mb_over_10_epochs\": %.3g", measure_memory("VmRSS") - before_mb);
  const struct figure figure = {"dataloader", params, "samples/s", 1, samples, kind->epochs, base_rss_mb, extra};
  measure_report(state, &figure);
  for (int i = 0; i < FIRST_BATCHES; i++) first[i] = time_to_first_batch(loader, i) * 1e3;
  const struct figure first_figure = {
      "dataloader_first_batch", params, "ms", 0, first, FIRST_BATCHES, base_rss_mb, NULL};
  measure_report(state, &first_figure);

  accel_dataloader_release(loader);
  accel_dataloader_release(plain);
  accel_dataset_release(dataset);
  accel_state_release(state);
  return 0;
}
