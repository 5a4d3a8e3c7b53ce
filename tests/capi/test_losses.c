/* SPDX-License-Identifier: Apache-2.0 */
/* Section 6: losses, by numbers that were computed by hand. */
#include <math.h>

#include "capi_test.h"

typedef accel_status_t (*loss_fn)(const accel_tensor_t *, const accel_tensor_t *, accel_tensor_t **);

enum { COUNT = 4 };
static const int64_t kSquare[] = {2, 2};

static accel_status_t huber(const accel_tensor_t *input, const accel_tensor_t *target, accel_tensor_t **out) {
  return accel_huber_loss(input, target, 0.5, out);
}

/* The loss and its gradient by the input. */
static void assert_loss(loss_fn loss, const float *input, const float *target, double expected, const float *gradient) {
  accel_tensor_t *const x = new_test_tensor(input, kSquare, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const y = new_test_tensor(target, kSquare, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *out = NULL, *computed = NULL;
  double number = 0;
  void *found = NULL;
  int64_t count = 0;
  assert_ok(accel_tensor_set_requires_grad(x, 1));
  assert_ok(loss(x, y, &out));
  assert_ok(accel_tensor_item(out, &number));
  assert_true(fabs(number - expected) < 1e-6);
  assert_ok(accel_tensor_backward(out, NULL));
  assert_ok(accel_tensor_grad(x, &computed));
  assert_ok(accel_tensor_elements(computed, ACCEL_DTYPE_FLOAT32, &found, &count));
  assert_int_equal(count, COUNT);
  for (int i = 0; i < COUNT; i++) assert_true(fabsf(((const float *)found)[i] - gradient[i]) < 1e-6f);
  accel_tensor_release(computed);
  accel_tensor_release(out);
  accel_tensor_release(y);
  accel_tensor_release(x);
}

static const float kInput[] = {1, 2, 3, 4}, kTarget[] = {1, 0, 3.25f, 5}; /* differences 0, 2, -1/4, -1 */

static void test_mse(void **state) {
  (void)state;
  const float gradient[] = {0, 1, -0.125f, -0.5f}; /* 2 d / 4 */
  assert_loss(accel_mse_loss, kInput, kTarget, (4 + 0.0625 + 1) / 4, gradient);
}

static void test_l1(void **state) {
  (void)state;
  const float gradient[] = {0, 0.25f, -0.25f, -0.25f}; /* the sign / 4 */
  assert_loss(accel_l1_loss, kInput, kTarget, (2 + 0.25 + 1) / 4, gradient);
}

static void test_huber(void **state) {
  (void)state;
  /* Below 1/2: d^2 / 2; above: 1/2 (|d| - 1/4). */
  const float gradient[] = {0, 0.125f, -0.0625f, -0.125f};
  assert_loss(huber, kInput, kTarget, (0.5 * 1.75 + 0.03125 + 0.5 * 0.75) / 4, gradient);
}

static void test_binary_cross_entropy(void **state) {
  (void)state;
  const float logits[] = {0, 0, 100, -100}, target[] = {0, 1, 1, 1};
  /* ln 2, ln 2, 0, 100: a sigmoid of its own would be 0 and its logarithm infinite. */
  const float gradient[] = {0.125f, -0.125f, 0, -0.25f}; /* (sigmoid - target) / 4 */
  assert_loss(accel_binary_cross_entropy_with_logits, logits, target, (2 * 0.6931471805599453 + 100) / 4, gradient);
}

static void test_cross_entropy(void **state) {
  (void)state;
  const float logits[] = {0, 0, 1, 1};
  const int64_t labels[] = {0, -100}, two[] = {2}; /* the second is left out */
  accel_tensor_t *const x = new_test_tensor(logits, kSquare, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const y = new_test_tensor(labels, two, 1, ACCEL_DTYPE_INT64);
  accel_tensor_t *out = NULL;
  double number = 0;
  assert_ok(accel_cross_entropy(x, y, &out));
  assert_ok(accel_tensor_item(out, &number));
  assert_true(fabs(number - 0.6931471805599453) < 1e-6);
  accel_tensor_release(out);
  out = NULL;
  assert_fails(accel_cross_entropy(x, x, &out), ACCEL_ERROR_TYPE_MISMATCH, "labels are float32; expected int64");
  assert_fails(accel_cross_entropy(y, y, &out), ACCEL_ERROR_TYPE_MISMATCH,
               "logits are int64; expected a floating dtype");
  const int64_t one[] = {1};
  accel_tensor_t *const short_labels = new_test_tensor(labels, one, 1, ACCEL_DTYPE_INT64);
  assert_fails(accel_cross_entropy(x, short_labels, &out), ACCEL_ERROR_SHAPE_MISMATCH,
               "labels have shape [1] and logits [2, 2]");
  assert_null(out);
  accel_tensor_release(short_labels);
  accel_tensor_release(y);
  accel_tensor_release(x);
}

/* LibTorch computes with [4] and [4, 1] the loss of all 16 pairs. */
static void test_wrong_shapes_and_dtypes(void **state) {
  (void)state;
  const struct {
    loss_fn loss;
    const char *input;
  } losses[] = {{accel_mse_loss, "input"},
                {accel_l1_loss, "input"},
                {huber, "input"},
                {accel_binary_cross_entropy_with_logits, "logits"}};
  const int64_t row[] = {4}, column[] = {4, 1}, integers[] = {1, 2, 3, 4};
  accel_tensor_t *const x = new_test_tensor(kInput, row, 1, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const y = new_test_tensor(kTarget, column, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const whole = new_test_tensor(integers, row, 1, ACCEL_DTYPE_INT64);
  for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
    accel_tensor_t *out = NULL;
    char message[96];
    snprintf(message, sizeof message, "target has shape [4, 1] and %s [4]; expected the same", losses[i].input);
    assert_fails(losses[i].loss(x, y, &out), ACCEL_ERROR_SHAPE_MISMATCH, message);
    assert_fails(losses[i].loss(x, whole, &out), ACCEL_ERROR_TYPE_MISMATCH,
                 "target is int64; expected a floating dtype");
    snprintf(message, sizeof message, "%s is int64; expected a floating dtype", losses[i].input);
    assert_fails(losses[i].loss(whole, x, &out), ACCEL_ERROR_TYPE_MISMATCH, message);
    assert_null(out);
  }
  accel_tensor_release(whole);
  accel_tensor_release(y);
  accel_tensor_release(x);
}

static void test_delta(void **state) {
  (void)state;
  accel_tensor_t *const x = new_test_tensor(kInput, kSquare, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *out = NULL;
  const double wrong[] = {0, -1, (double)INFINITY, (double)NAN};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_fails(accel_huber_loss(x, x, wrong[i], &out), ACCEL_ERROR_INVALID_ARGUMENT, "expected a positive number");
  assert_null(out);
  accel_tensor_release(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_mse),           capi_unit_test(test_l1),
      capi_unit_test(test_huber),         capi_unit_test(test_binary_cross_entropy),
      capi_unit_test(test_cross_entropy), capi_unit_test(test_wrong_shapes_and_dtypes),
      capi_unit_test(test_delta),
  };
  return cmocka_run_group_tests_name("losses", tests, NULL, NULL);
}
