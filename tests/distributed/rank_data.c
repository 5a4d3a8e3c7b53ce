/* SPDX-License-Identifier: Apache-2.0 */
/* What several ranks see of loaders: rank 0 reads for all, and a run goes on with another number of ranks. */
#include <string.h>

#include "rank_program.h"

#define ITEMS 11

struct source {
  int64_t next, begun;
  int64_t fails_at; /* once; -1: never */
};

static int64_t begin_items(int64_t epoch, int64_t shard, int64_t num_readers, void* user_data) {
  struct source* source = user_data;
  EXPECT(shard == 0 && num_readers == 1 && epoch >= 0);
  source->next = 0;
  source->begun++;
  return 0;
}

/* {number: i, row: 1 + i % 4 times i, name: "item i"} */
static accel_status_t next_item(int64_t reader, accel_value_t* out_item, void* user_data) {
  struct source* source = user_data;
  (void)reader;
  if (source->next == ITEMS) return ACCEL_ITER_END;
  const int64_t i = source->next;
  if (i == source->fails_at) {
    source->fails_at = -1;
    accel_error_set(ACCEL_ERROR_IO, "the source is gone for a moment");
    return ACCEL_ERROR_IO;
  }
  source->next++;
  char name[32];
  const int64_t row[4] = {i, i, i, i}, length = 1 + i % 4;
  accel_tensor_t* tensor = NULL;
  snprintf(name, sizeof name, "item %d", (int)i);
  CHECK(accel_tensor_from_data(row, &length, 1, ACCEL_DTYPE_INT64, &tensor));
  const accel_value_t number = accel_arg_int(i), values = accel_arg_tensor(tensor), text = accel_arg_string(name);
  CHECK(accel_value_map(out_item));
  CHECK(accel_value_set(out_item, "number", &number));
  CHECK(accel_value_set(out_item, "row", &values));
  CHECK(accel_value_set(out_item, "name", &text));
  accel_tensor_release(tensor);
  return ACCEL_OK;
}

static const int64_t* integers(const accel_tensor_t* tensor, int64_t* count) {
  void* data = NULL;
  CHECK(accel_tensor_numel(tensor, count));
  CHECK(accel_tensor_data(tensor, &data));
  return data;
}

/* Counts the numbers of all ranks' batches. */
static void count_numbers(accel_state_t* state, const accel_value_t* numbers, int64_t* seen, int64_t limit) {
  accel_value_t all = ACCEL_VALUE_INIT;
  int64_t count = 0;
  CHECK(accel_gather_for_metrics(state, numbers, &all));
  const int64_t* const found = integers(all.as.tensor, &count);
  for (int64_t i = 0; i < count; i++) {
    EXPECT(found[i] >= 0 && found[i] < limit);
    seen[found[i]]++;
  }
  accel_value_dispose(&all);

  /* The same as objects, of which each rank keeps those of its own rows. */
  accel_value_t list = ACCEL_VALUE_INIT;
  int64_t rows = 0;
  const int64_t* const own = integers(numbers->as.tensor, &rows);
  CHECK(accel_value_list(NULL, 0, &list));
  for (int64_t i = 0; i < rows; i++) {
    const accel_value_t number = accel_arg_int(own[i]);
    CHECK(accel_value_push(&list, &number));
  }
  CHECK(accel_gather_object_for_metrics(state, &list, &all));
  EXPECT((int64_t)accel_value_count(&all) == count);
  accel_value_dispose(&all);
  accel_value_dispose(&list);
}

static void expect_each_once(const int64_t* seen, int64_t count) {
  for (int64_t i = 0; i < count; i++) EXPECT(seen[i] == 1);
}

/* Rows are as long as the longest of this rank alone, and say what the numbers and the names say. */
static void check_rows(const accel_value_t* batch) {
  int64_t rows = 0, elements = 0;
  const int64_t* const numbers = integers(accel_value_get(batch, "number")->as.tensor, &rows);
  const int64_t* const row = integers(accel_value_get(batch, "row")->as.tensor, &elements);
  const accel_value_t* const names = accel_value_get(batch, "name");
  int64_t longest = 0;
  for (int64_t i = 0; i < rows; i++) longest = 1 + numbers[i] % 4 > longest ? 1 + numbers[i] % 4 : longest;
  EXPECT(elements == rows * longest);
  EXPECT((int64_t)accel_value_count(names) == rows);
  for (int64_t i = 0; i < rows; i++) {
    char name[32];
    snprintf(name, sizeof name, "item %d", (int)numbers[i]);
    EXPECT(strcmp(accel_value_at(names, (size_t)i)->as.string, name) == 0);
    for (int64_t j = 0; j < longest; j++) EXPECT(row[i * longest + j] == (j < 1 + numbers[i] % 4 ? numbers[i] : -1));
  }
}

void run_dispatch(accel_state_t* state, const char* argument) {
  (void)argument;
  struct source source = {0, 0, -1};
  accel_dataset_t* items = NULL;
  accel_dataloader_t *plain = NULL, *loader = NULL;
  CHECK(accel_dataset_create_stream(begin_items, next_item, NULL, NULL, &source, NULL, ACCEL_UNSET_INT64, 1, &items));
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = 2;
  options.collate = ACCEL_COLLATE_PAD;
  options.padding_value = -1;
  CHECK(accel_dataloader_create(items, &options, &plain));
  accel_dataloader_config_t config = ACCEL_DATALOADER_CONFIG_INIT;
  config.dispatch_batches = 1;
  CHECK(accel_prepare_data_loader(state, plain, &config, &loader));
  const int32_t reads = accel_process_index(state) == 0;
  for (int epoch = 0; epoch < 2; epoch++) {
    int64_t seen[ITEMS] = {0};
    int32_t failures = 0;
    if (epoch == 1) source.fails_at = 5;
    for (;;) {
      accel_value_t batch = ACCEL_VALUE_INIT;
      const accel_status_t status = accel_dataloader_next(loader, &batch);
      if (status == ACCEL_ITER_END) break;
      if (status < 0) { /* all ranks hear of it, and the batch comes at the next call */
        EXPECT(status == (reads ? ACCEL_ERROR_IO : ACCEL_ERROR_CANCELLED));
        EXPECT(strstr(accel_last_error(), "the source is gone for a moment") != NULL);
        failures++;
        continue;
      }
      check_rows(&batch);
      count_numbers(state, accel_value_get(&batch, "number"), seen, ITEMS);
      accel_value_dispose(&batch);
    }
    expect_each_once(seen, ITEMS);
    EXPECT(failures == epoch);
  }
  EXPECT(reads ? source.begun >= 2 : source.begun == 0);
  accel_dataloader_release(loader);
  accel_dataloader_release(plain);
  accel_dataset_release(items);
}

#define NUMBERS 23

static accel_dataloader_t* shuffled_numbers(accel_state_t* state) {
  int64_t numbers[NUMBERS];
  const int64_t count = NUMBERS;
  for (int64_t i = 0; i < NUMBERS; i++) numbers[i] = i;
  accel_tensor_t* tensor = NULL;
  accel_dataset_t* dataset = NULL;
  accel_dataloader_t *plain = NULL, *loader = NULL;
  CHECK(accel_tensor_from_data(numbers, &count, 1, ACCEL_DTYPE_INT64, &tensor));
  CHECK(accel_dataset_tensors(&tensor, 1, &dataset));
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = 2;
  options.shuffle = 1;
  options.seed = 3;
  options.num_workers = 2;
  CHECK(accel_dataloader_create(dataset, &options, &plain));
  CHECK(accel_prepare_data_loader(state, plain, NULL, &loader));
  accel_dataloader_release(plain);
  accel_dataset_release(dataset);
  accel_tensor_release(tensor);
  return loader;
}

/* Counts what the next batch of all ranks holds. 0 at the end of the epoch. */
static int32_t count_batch(accel_state_t* state, accel_dataloader_t* loader, int64_t* seen) {
  accel_value_t batch = ACCEL_VALUE_INIT;
  const accel_status_t status = accel_dataloader_next(loader, &batch);
  CHECK(status);
  if (status == ACCEL_ITER_END) return 0;
  count_numbers(state, accel_value_at(&batch, 0), seen, NUMBERS);
  accel_value_dispose(&batch);
  return 1;
}

static FILE* open_seen(const char* folder, const char* mode) {
  char path[600];
  snprintf(path, sizeof path, "%s/seen", folder);
  FILE* const file = fopen(path, mode);
  EXPECT(file != NULL);
  return file;
}

/* Stops in the middle of an epoch. */
void run_leave_epoch(accel_state_t* state, const char* folder) {
  char path[600];
  int64_t seen[NUMBERS] = {0};
  accel_dataloader_t* loader = shuffled_numbers(state);
  for (int i = 0; i < 3; i++) EXPECT(count_batch(state, loader, seen));
  snprintf(path, sizeof path, "%s/state", folder);
  CHECK(accel_save_state(state, path, NULL));
  if (accel_process_index(state) == 0) {
    FILE* const file = open_seen(folder, "wb");
    EXPECT(fwrite(seen, sizeof seen, 1, file) == 1);
    EXPECT(fclose(file) == 0);
  }
  accel_dataloader_release(loader);
}

/* Goes on with it: what was not seen comes, and nothing else. The next epoch is whole. */
void run_resume_epoch(accel_state_t* state, const char* folder) {
  char path[600];
  int64_t seen[NUMBERS] = {0}, next[NUMBERS] = {0};
  FILE* const file = open_seen(folder, "rb");
  EXPECT(fread(seen, sizeof seen, 1, file) == 1);
  EXPECT(fclose(file) == 0);
  accel_dataloader_t* loader = shuffled_numbers(state);
  snprintf(path, sizeof path, "%s/state", folder);
  CHECK(accel_load_state(state, path, NULL));
  while (count_batch(state, loader, seen)) {
  }
  expect_each_once(seen, NUMBERS);
  while (count_batch(state, loader, next)) {
  }
  expect_each_once(next, NUMBERS);
  accel_dataloader_release(loader);
}
