/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of values, for the tests of section 2. */
#ifndef ACCEL_TREE_FIXTURE_H
#define ACCEL_TREE_FIXTURE_H

#include "capi_test.h"

static const float kNumbers[6] = {1, 2, 3, 4, 5, 6};
static const int64_t kThreeByTwo[2] = {3, 2};

/* {"x": 3 by 2, "y": [row of 3, "text", 7]} */
static inline accel_value_t new_tree(void) {
  accel_tensor_t *const matrix = new_test_tensor(kNumbers, kThreeByTwo, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const row = new_test_tensor(kNumbers, kThreeByTwo, 1, ACCEL_DTYPE_FLOAT32);
  const accel_value_t items[] = {accel_arg_tensor(row), accel_arg_string("text"), accel_arg_int(7)};
  const accel_value_t x = accel_arg_tensor(matrix);
  accel_value_t tree = ACCEL_VALUE_INIT, y = ACCEL_VALUE_INIT;
  assert_ok(accel_value_map(&tree));
  assert_ok(accel_value_list(items, 3, &y));
  assert_ok(accel_value_set(&tree, "x", &x));
  assert_ok(accel_value_set(&tree, "y", &y));
  accel_value_dispose(&y);
  accel_tensor_release(matrix);
  accel_tensor_release(row);
  return tree;
}

static inline int32_t are_equal(const accel_value_t *a, const accel_value_t *b) {
  int32_t equal = -1;
  assert_ok(accel_value_equal(a, b, &equal));
  return equal;
}

#endif
