/* Workload dataloader: samples a second of a shuffled loader with which nothing else is done, the milliseconds from the
 * start of a loop to its first batch, and how far memory grows over epochs. One process. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>

#define ROWS 20000
#define WIDTH 64
#define BATCH 32
#define EPOCHS 5
#define FIRST_BATCHES 20

static accel_dataset_t *make_rows(void) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int64_t shape[] = {ROWS, WIDTH};
  accel_tensor_t *tensors[2] = {NULL, NULL};
  accel_dataset_t *dataset = NULL;
  CHECK(accel_tensor_randn(shape, 2, ACCEL_DTYPE_FLOAT32, cpu, &tensors[0]));
  CHECK(accel_tensor_randint(0, 10, shape, 1, &tensors[1]));
  CHECK(accel_dataset_tensors(tensors, 2, &dataset));
  accel_tensor_release(tensors[0]);
  accel_tensor_release(tensors[1]);
  return dataset;
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
  enum { WORKERS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--workers", "0"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&settings, &state));
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_dataset_t *dataset = make_rows();
  accel_dataloader_options_t loader_options = ACCEL_DATALOADER_OPTIONS_INIT;
  loader_options.batch_size = BATCH;
  loader_options.shuffle = 1;
  loader_options.num_workers = measure_integer(&options[WORKERS]);
  accel_dataloader_t *plain = NULL, *loader = NULL;
  CHECK(accel_dataloader_create(dataset, &loader_options, &plain));
  CHECK(accel_prepare_data_loader(state, plain, NULL, &loader));

  char params[120], extra[64];
  snprintf(params, sizeof params, "{\"dataset\": \"tensor\", \"rows\": %d, \"batch\": %d, \"workers\": %lld}", ROWS,
           BATCH, (long long)loader_options.num_workers);
  run_epoch(loader);
  const double before_mb = measure_memory("VmRSS");
  double samples[EPOCHS], first[FIRST_BATCHES];
  for (int epoch = 0; epoch < EPOCHS; epoch++) samples[epoch] = ROWS / run_epoch(loader);
  for (int epoch = EPOCHS; epoch < 10; epoch++) run_epoch(loader);
  snprintf(extra, sizeof extra, "\"growth_mb_over_10_epochs\": %.3g", measure_memory("VmRSS") - before_mb);
  const struct figure figure = {"dataloader", params, "samples/s", 1, samples, EPOCHS, base_rss_mb, extra};
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
