/* SPDX-License-Identifier: Apache-2.0 */
/* Section 9: samplers. */
#include "capi_test.h"

static void samplers_give_orders(void **state) {
  (void)state;
  accel_sampler_t *sequential = NULL, *random = NULL, *refused = NULL;
  accel_tensor_t *order = NULL;
  assert_ok(accel_sampler_sequential(3, &sequential));
  assert_ok(accel_sampler_indices(sequential, 5, &order));
  assert_int_equal(elements(order, 3)[2], 2);
  accel_tensor_release(order);
  assert_ok(accel_sampler_seedable_random(32, 7, &random));
  assert_ok(accel_sampler_indices(random, 0, &order));
  assert_int_equal(elements(order, 32)[0], 15); /* torch.randperm(32, generator=seed 7) */
  assert_int_equal(elements(order, 32)[1], 11);
  accel_tensor_release(order);
  assert_ok(accel_sampler_indices(random, 1, &order));
  assert_int_equal(elements(order, 32)[0], 3); /* seed 8 */
  accel_tensor_release(order);

  order = NULL;
  assert_fails(accel_sampler_indices(random, -1, &order), ACCEL_ERROR_INVALID_ARGUMENT, "epoch is -1");
  assert_fails(accel_sampler_indices(random, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_fails(accel_sampler_indices(NULL, 0, &order), ACCEL_ERROR_INVALID_ARGUMENT, "sampler is NULL");
  assert_fails(accel_sampler_sequential(-1, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "length is -1");
  assert_fails(accel_sampler_seedable_random(0, 1, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "0 items");
  assert_fails(accel_sampler_sequential(3, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_fails(accel_sampler_seedable_random(3, 1, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(order);
  assert_null(refused);
  accel_sampler_release(accel_sampler_retain(random));
  accel_sampler_release(random);
  accel_sampler_release(sequential);
  accel_sampler_release(NULL);
}

static void assert_order(accel_sampler_t *sampler, int64_t epoch, const int64_t *expected, size_t count) {
  accel_tensor_t *order = NULL;
  assert_int_equal(accel_sampler_length(sampler), count);
  assert_ok(accel_sampler_indices(sampler, epoch, &order));
  assert_memory_equal(elements(order, count), expected, count * sizeof(int64_t));
  accel_tensor_release(order);
  accel_sampler_release(sampler);
}

/* The numbers are those of torch and transformers. */
static void draws_are_those_of_torch(void **state) {
  (void)state;
  accel_sampler_t *sampler = NULL;
  assert_ok(accel_sampler_weighted((const double[]){0.1, 0.9, 0.4, 0.7, 3.0, 0.6}, 6, 8, 1, 7, &sampler));
  assert_order(sampler, 0, (const int64_t[]){3, 3, 4, 4, 5, 4, 3, 4}, 8);
  assert_ok(accel_sampler_subset((const int64_t[]){3, 1, 4, 15, 9, 2, 6}, 7, 1, 5, &sampler));
  assert_order(sampler, 3, (const int64_t[]){1, 2, 15, 9, 3, 4, 6}, 7);
  assert_ok(accel_sampler_subset((const int64_t[]){3, 1}, 2, 0, 5, &sampler));
  assert_order(sampler, 3, (const int64_t[]){3, 1}, 2);
  assert_ok(accel_sampler_distributed(10, 3, 1, 1, 2, 0, &sampler));
  assert_order(sampler, 4, (const int64_t[]){7, 8, 2, 0}, 4);
  assert_ok(accel_sampler_distributed(10, 3, 1, 0, 2, 1, &sampler));
  assert_order(sampler, 4, (const int64_t[]){1, 4, 7}, 3);
  assert_ok(accel_sampler_length_grouped((const int64_t[]){1, 5, 2, 4}, 4, 2, 2, 3, &sampler));
  assert_order(sampler, 0, (const int64_t[]){1, 3, 2, 0}, 4);
  assert_ok(accel_sampler_random_draws(4, 9, 0, 1, &sampler));
  assert_int_equal(accel_sampler_length(sampler), 9);
  accel_sampler_release(sampler);

  sampler = NULL;
  assert_fails(accel_sampler_weighted(NULL, 1, 1, 1, 0, &sampler), ACCEL_ERROR_INVALID_ARGUMENT, "weights is NULL");
  assert_fails(accel_sampler_weighted((const double[]){1}, 1, 1, 7, 0, &sampler), ACCEL_ERROR_INVALID_ARGUMENT,
               "replacement is 7");
  assert_fails(accel_sampler_random_draws(3, 0, 1, 0, &sampler), ACCEL_ERROR_INVALID_ARGUMENT, "num_samples is 0");
  assert_fails(accel_sampler_subset(NULL, 2, 0, 0, &sampler), ACCEL_ERROR_INVALID_ARGUMENT, "indices is NULL");
  assert_fails(accel_sampler_length_grouped((const int64_t[]){1}, 1, 0, 1, 0, &sampler), ACCEL_ERROR_INVALID_ARGUMENT,
               "batch_size is 0");
  assert_fails(accel_sampler_distributed(3, 2, 2, 0, 0, 0, &sampler), ACCEL_ERROR_INVALID_ARGUMENT, "rank is 2");
  assert_null(sampler);
}

struct backwards {
  int calls;
  int destroyed;
};

static accel_status_t backwards(int64_t epoch, int64_t *indices, size_t n_indices, void *user_data) {
  struct backwards *data = user_data;
  data->calls++;
  if (epoch == 9) {
    accel_error_set(ACCEL_ERROR_IO, "no order for epoch 9");
    return ACCEL_ERROR_IO;
  }
  for (size_t i = 0; i < n_indices; i++) indices[i] = (int64_t)(n_indices - 1 - i) + epoch;
  return ACCEL_OK;
}

static void note_destroyed(void *user_data) { ((struct backwards *)user_data)->destroyed++; }

static void the_program_makes_the_order(void **state) {
  (void)state;
  struct backwards data = {0, 0};
  accel_sampler_t *sampler = NULL;
  accel_tensor_t *order = NULL;
  assert_ok(accel_sampler_create(3, backwards, &data, note_destroyed, &sampler));
  assert_fails(accel_sampler_indices(sampler, 9, &order), ACCEL_ERROR_IO, "no order for epoch 9");
  assert_order(sampler, 1, (const int64_t[]){3, 2, 1}, 3);
  assert_int_equal(data.calls, 2);
  assert_int_equal(data.destroyed, 1);
  assert_fails(accel_sampler_create(-3, backwards, &data, note_destroyed, &sampler), ACCEL_ERROR_INVALID_ARGUMENT,
               "length is -3");
  assert_int_equal(data.destroyed, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(samplers_give_orders),
      capi_unit_test(draws_are_those_of_torch),
      capi_unit_test(the_program_makes_the_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
