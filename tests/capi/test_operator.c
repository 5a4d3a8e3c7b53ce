/* SPDX-License-Identifier: Apache-2.0 */
/* Section 6: operators and autograd. */
#include "capi_test.h"

static const float kNumbers[] = {3, 1, 2};
static const int64_t kThree[] = {3};

static const accel_op_t *find(const char *name, const char *overload) {
  const accel_op_t *op = NULL;
  assert_ok(accel_op_find(name, overload, &op));
  return op;
}

/* The number of the single result, which is given back. */
static double take_number(accel_value_t *result) {
  double number = 0;
  assert_int_equal(result->kind, ACCEL_VALUE_TENSOR);
  assert_ok(accel_tensor_item(result->as.tensor, &number));
  accel_value_dispose(result);
  return number;
}

static void test_find(void **state) {
  (void)state;
  const accel_op_t *const add = find("aten::add", "Tensor");
  assert_ptr_equal(add, find("aten::add", "Tensor"));
  assert_string_equal(accel_op_schema(add), "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
  assert_ptr_equal(accel_op_schema(add), accel_op_schema(add));
  assert_null(accel_op_schema(NULL));
  assert_message("op is NULL");

  const accel_op_t *out = NULL;
  assert_fails(accel_op_find("aten::add", "Tensr", &out), ACCEL_ERROR_NOT_FOUND, "'Tensor'");
  assert_fails(accel_op_find("aten::sofmax", "int", &out), ACCEL_ERROR_NOT_FOUND, "did you mean aten::softmax");
  assert_fails(accel_op_find(NULL, "", &out), ACCEL_ERROR_INVALID_ARGUMENT, "name is NULL");
  assert_fails(accel_op_find("aten::mm", NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT, "overload is NULL");
  assert_fails(accel_op_find("aten::mm", "", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(out);
}

static void test_resolve(void **state) {
  (void)state;
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kThree, 1, ACCEL_DTYPE_FLOAT32);
  const accel_value_t args[] = {accel_arg_tensor(tensor), accel_arg_int(2)};
  const accel_value_t pair[] = {args[0], args[0]};
  const char *const names[] = {"alpha"};
  const accel_op_t *op = NULL;
  assert_ok(accel_op_resolve("aten::add", args, 2, NULL, NULL, 0, &op));
  assert_ptr_equal(op, find("aten::add", "Scalar"));
  assert_ok(accel_op_resolve("add", pair, 2, names, &args[1], 1, &op));
  assert_ptr_equal(op, find("aten::add", "Tensor"));
  assert_ok(
      accel_op_resolve("linear_cross_entropy", (accel_value_t[]){args[0], args[0], args[0]}, 3, NULL, NULL, 0, &op));
  assert_ptr_equal(op, find("accel::linear_cross_entropy", ""));

  const accel_op_t *none = NULL;
  const accel_value_t words[] = {args[0], accel_arg_string("two")};
  assert_fails(accel_op_resolve("aten::add", words, 2, NULL, NULL, 0, &none), ACCEL_ERROR_TYPE_MISMATCH,
               "no overload of aten::add takes (a tensor, the string 'two')");
  assert_fails(accel_op_resolve("aten::ad", args, 2, NULL, NULL, 0, &none), ACCEL_ERROR_NOT_FOUND, "did you mean");
  assert_fails(accel_op_resolve(NULL, args, 2, NULL, NULL, 0, &none), ACCEL_ERROR_INVALID_ARGUMENT, "name is NULL");
  assert_fails(accel_op_resolve("add", NULL, 2, NULL, NULL, 0, &none), ACCEL_ERROR_INVALID_ARGUMENT, "args is NULL");
  assert_fails(accel_op_resolve("add", args, 2, NULL, args, 1, &none), ACCEL_ERROR_INVALID_ARGUMENT,
               "names is NULL; expected 1 items");
  assert_fails(accel_op_resolve("add", args, 2, NULL, NULL, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(none);
  accel_tensor_release(tensor);
}

static void test_list(void **state) {
  (void)state;
  accel_value_t names = ACCEL_VALUE_INIT;
  assert_ok(accel_op_list("aten::mm", &names));
  assert_true(accel_value_count(&names) >= 2);
  assert_string_equal(accel_value_at(&names, 0)->as.string, "aten::mm");
  accel_value_dispose(&names);
  assert_ok(accel_op_list("no such", &names));
  assert_int_equal(accel_value_count(&names), 0);
  accel_value_dispose(&names);
  assert_fails(accel_op_list(NULL, &names), ACCEL_ERROR_INVALID_ARGUMENT, "prefix is NULL");
  assert_fails(accel_op_list("", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_call(void **state) {
  (void)state;
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kThree, 1, ACCEL_DTYPE_FLOAT32);
  accel_value_t results[2] = {ACCEL_VALUE_INIT, ACCEL_VALUE_INIT};
  size_t n_results = 42;
  const accel_value_t args[] = {accel_arg_tensor(tensor)};
  assert_ok(accel_op_call(find("aten::sum", ""), args, 1, results, 2, &n_results));
  assert_int_equal(n_results, 1);
  assert_true(take_number(&results[0]) == 6);

  assert_ok(accel_op_call(find("aten::sort", ""), args, 1, results, 2, &n_results));
  assert_int_equal(n_results, 2);
  const int64_t *order = NULL;
  void *data = NULL;
  assert_ok(accel_tensor_data(results[1].as.tensor, &data));
  order = data;
  assert_true(order[0] == 1 && order[1] == 2 && order[2] == 0);
  accel_value_dispose(&results[0]);
  accel_value_dispose(&results[1]);

  accel_value_t items = ACCEL_VALUE_INIT, pair[2] = {args[0], args[0]};
  assert_ok(accel_value_list(pair, 2, &items));
  assert_ok(accel_op_call(find("aten::stack", ""), &items, 1, results, 1, &n_results));
  size_t ndim = 0;
  assert_ok(accel_tensor_ndim(results[0].as.tensor, &ndim));
  assert_int_equal(ndim, 2);
  accel_value_dispose(&items);
  items = results[0];
  const accel_value_t unbind_args[] = {items};
  assert_ok(accel_op_call(find("aten::unbind", "int"), unbind_args, 1, results, 1, &n_results));
  assert_int_equal(results[0].kind, ACCEL_VALUE_LIST);
  assert_int_equal(accel_value_count(&results[0]), 2);
  accel_value_dispose(&items);
  accel_value_dispose(&results[0]);

  /* Some operators give numbers. */
  assert_ok(accel_op_call(find("aten::equal", ""), pair, 2, results, 1, &n_results));
  assert_int_equal(results[0].kind, ACCEL_VALUE_BOOL);
  assert_int_equal(results[0].as.integer, 1);
  accel_value_dispose(&results[0]);
  accel_tensor_release(tensor);
}

static void test_call_kw(void **state) {
  (void)state;
  accel_value_t shape = ACCEL_VALUE_INIT, result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  assert_ok(accel_value_int_list(NULL, 0, &shape));
  const char *const names[] = {"dtype", "device", "fill_value"};
  const accel_value_t kwargs[] = {accel_arg_dtype(ACCEL_DTYPE_INT16),
                                  accel_arg_device(&(accel_device_t){ACCEL_DEVICE_CPU, -1}), accel_arg_int(7)};
  const accel_op_t *const full = find("aten::full", "");
  assert_ok(accel_op_call_kw(full, &shape, 1, names, kwargs, 3, &result, 1, &n_results));
  accel_dtype_t dtype = 0;
  assert_ok(accel_tensor_dtype(result.as.tensor, &dtype));
  assert_int_equal(dtype, ACCEL_DTYPE_INT16);
  assert_true(take_number(&result) == 7);

  const char *const unknown[] = {"colour"}, *const missing[] = {NULL};
  assert_fails(accel_op_call_kw(full, &shape, 1, unknown, kwargs, 1, &result, 1, &n_results), ACCEL_ERROR_NOT_FOUND,
               "aten::full has no argument 'colour'");
  assert_fails(accel_op_call_kw(full, &shape, 1, missing, kwargs, 1, &result, 1, &n_results),
               ACCEL_ERROR_INVALID_ARGUMENT, "aten::full: kwargs[0]: name is NULL");
  assert_fails(accel_op_call_kw(full, &shape, 1, names, NULL, 1, &result, 1, &n_results), ACCEL_ERROR_INVALID_ARGUMENT,
               "kwargs is NULL; expected 1 items");
  assert_int_equal(result.kind, ACCEL_VALUE_NONE);
  accel_value_dispose(&shape);
}

static void test_call_refuses(void **state) {
  (void)state;
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kThree, 1, ACCEL_DTYPE_FLOAT32);
  const accel_op_t *const add = find("aten::add", "Tensor"), *const sort = find("aten::sort", "");
  accel_value_t results[2] = {ACCEL_VALUE_INIT, ACCEL_VALUE_INIT};
  size_t n = 42;
  accel_value_t args[] = {accel_arg_tensor(tensor), accel_arg_string("x"), accel_arg_none(), accel_arg_none()};
  assert_fails(accel_op_call(add, args, 2, results, 2, &n), ACCEL_ERROR_TYPE_MISMATCH,
               "aten::add.Tensor: argument 1 (other) is the string 'x'; expected Tensor other");
  assert_fails(accel_op_call(add, args, 1, results, 2, &n), ACCEL_ERROR_INVALID_ARGUMENT, "lacks argument 1 (other)");
  assert_fails(accel_op_call(add, args, 4, results, 2, &n), ACCEL_ERROR_INVALID_ARGUMENT,
               "4 arguments; expected at most 3");
  args[1] = accel_arg_tensor(NULL);
  assert_fails(accel_op_call(add, args, 2, results, 2, &n), ACCEL_ERROR_INVALID_ARGUMENT,
               "aten::add.Tensor: args[1]: ");
  args[1] = accel_arg_dtype(99);
  assert_fails(accel_op_call(add, args, 2, results, 2, &n), ACCEL_ERROR_INVALID_ARGUMENT, "args[1]: ");
  assert_fails(accel_op_call(sort, args, 1, results, 1, &n), ACCEL_ERROR_INVALID_ARGUMENT,
               "2 results and max_results is 1");
  assert_fails(accel_op_call(sort, args, 1, NULL, 2, &n), ACCEL_ERROR_INVALID_ARGUMENT, "results is NULL");
  assert_fails(accel_op_call(sort, args, 1, results, 2, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out_n_results is NULL");
  assert_fails(accel_op_call(sort, NULL, 1, results, 2, &n), ACCEL_ERROR_INVALID_ARGUMENT, "args is NULL");
  assert_fails(accel_op_call(NULL, args, 1, results, 2, &n), ACCEL_ERROR_INVALID_ARGUMENT, "op is NULL");
  assert_fails(accel_op_call((const accel_op_t *)(const void *)tensor, args, 1, results, 2, &n),
               ACCEL_ERROR_INVALID_HANDLE, "not an operator");

  /* The operator's own error is LibTorch's. */
  const int64_t two = 2;
  accel_tensor_t *const other = new_test_tensor(kNumbers, &two, 1, ACCEL_DTYPE_FLOAT32);
  args[1] = accel_arg_tensor(other);
  assert_fails(accel_op_call(add, args, 2, results, 2, &n), ACCEL_ERROR_TORCH, "size of tensor");
  assert_int_equal(results[0].kind, ACCEL_VALUE_NONE);
  assert_int_equal(n, 42);
  accel_tensor_release(other);
  accel_tensor_release(tensor);
}

/* Whether a product of a leaf is recorded now. */
static int32_t is_recorded(accel_tensor_t *leaf) {
  const accel_value_t args[] = {accel_arg_tensor(leaf), accel_arg_tensor(leaf)};
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  int32_t requires_grad = 42;
  assert_ok(accel_op_call(find("aten::mul", "Tensor"), args, 2, &result, 1, &n_results));
  assert_ok(accel_tensor_requires_grad(result.as.tensor, &requires_grad));
  accel_value_dispose(&result);
  return requires_grad;
}

static void test_scopes(void **state) {
  (void)state;
  accel_tensor_t *const leaf = new_test_tensor(kNumbers, kThree, 1, ACCEL_DTYPE_FLOAT32);
  accel_scope_t *outer = NULL, *inner = NULL;
  assert_ok(accel_tensor_set_requires_grad(leaf, 1));
  assert_int_equal(is_recorded(leaf), 1);
  assert_ok(accel_no_grad_begin(&outer));
  assert_int_equal(is_recorded(leaf), 0);
  assert_ok(accel_enable_grad_begin(&inner));
  assert_int_equal(is_recorded(leaf), 1);
  assert_status(accel_scope_end(outer), ACCEL_ERROR_INVALID_STATE);
  assert_ok(accel_scope_end(inner));
  assert_int_equal(is_recorded(leaf), 0);
  assert_ok(accel_scope_end(outer));
  assert_ok(accel_inference_mode_begin(&outer));
  assert_int_equal(is_recorded(leaf), 0);
  assert_ok(accel_scope_end(outer));
  assert_int_equal(is_recorded(leaf), 1);
  assert_fails(accel_no_grad_begin(NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_fails(accel_enable_grad_begin(NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_fails(accel_inference_mode_begin(NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(is_recorded(leaf), 1);
  accel_tensor_release(leaf);
}

static void test_cross_entropy(void **state) {
  (void)state;
  const float scores[] = {0, 0, 0, 0};
  const int64_t classes[] = {1, -100}, shape[] = {2, 2};
  accel_tensor_t *const logits = new_test_tensor(scores, shape, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const labels = new_test_tensor(classes, shape, 1, ACCEL_DTYPE_INT64);
  accel_tensor_t *loss = NULL, *gradient = NULL;
  assert_ok(accel_tensor_set_requires_grad(logits, 1));
  assert_ok(accel_cross_entropy(logits, labels, &loss));
  double number = 0;
  assert_ok(accel_tensor_item(loss, &number));
  assert_true(number > 0.6931 && number < 0.6932);
  assert_ok(accel_tensor_backward(loss, NULL));
  assert_ok(accel_tensor_grad(logits, &gradient));
  void *data = NULL;
  assert_ok(accel_tensor_data(gradient, &data));
  assert_true(((const float *)data)[0] == 0.5f && ((const float *)data)[1] == -0.5f && ((const float *)data)[3] == 0);
  accel_tensor_release(gradient);
  accel_tensor_release(loss);

  loss = NULL;
  assert_fails(accel_cross_entropy(logits, logits, &loss), ACCEL_ERROR_TYPE_MISMATCH, "labels are float32");
  assert_fails(accel_cross_entropy(labels, labels, &loss), ACCEL_ERROR_TYPE_MISMATCH, "logits are int64");
  accel_tensor_t *const scalar = new_test_tensor(classes, NULL, 0, ACCEL_DTYPE_INT64);
  assert_fails(accel_cross_entropy(logits, scalar, &loss), ACCEL_ERROR_SHAPE_MISMATCH, "[2, 2]");
  assert_fails(accel_cross_entropy(logits, NULL, &loss), ACCEL_ERROR_INVALID_ARGUMENT, "labels is NULL");
  assert_fails(accel_cross_entropy(logits, labels, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(loss);
  accel_tensor_release(scalar);
  accel_tensor_release(logits);
  accel_tensor_release(labels);
}

static void test_float32_precision(void **unused) {
  (void)unused;
  assert_ok(accel_set_float32_matmul_precision("high"));
  assert_ok(accel_set_float32_matmul_precision("highest"));
  assert_fails(accel_set_float32_matmul_precision("best"), ACCEL_ERROR_INVALID_ARGUMENT,
               "precision is 'best'; expected highest, high or medium");
}

/* The engine's own operators are found, listed and called as LibTorch's are. */
static void test_linear_cross_entropy(void **state) {
  (void)state;
  accel_value_t names = ACCEL_VALUE_INIT;
  assert_ok(accel_op_list("accel::", &names));
  assert_int_equal(accel_value_count(&names), 8);
  assert_string_equal(accel_value_at(&names, 0)->as.string, "accel::combine_tokens");
  assert_string_equal(accel_value_at(&names, 1)->as.string, "accel::dispatch_tokens");
  assert_string_equal(accel_value_at(&names, 2)->as.string, "accel::fp8_linear");
  assert_string_equal(accel_value_at(&names, 3)->as.string, "accel::linear_cross_entropy");
  assert_string_equal(accel_value_at(&names, 4)->as.string, "accel::quantize_matrix");
  assert_string_equal(accel_value_at(&names, 5)->as.string, "accel::quantized_linear");
  assert_string_equal(accel_value_at(&names, 6)->as.string, "accel::quantized_scales");
  assert_string_equal(accel_value_at(&names, 7)->as.string, "accel::split_linear");
  accel_value_dispose(&names);

  const float rows[] = {0, 0, 5, 7}, unit[] = {1, 0, 0, 1};
  const int64_t classes[] = {1, -100}, wrong[] = {2, 0}, shape[] = {2, 2};
  accel_tensor_t *const input = new_test_tensor(rows, shape, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const weight = new_test_tensor(unit, shape, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const target = new_test_tensor(classes, shape, 1, ACCEL_DTYPE_INT64);
  accel_tensor_t *const outside = new_test_tensor(wrong, shape, 1, ACCEL_DTYPE_INT64);
  assert_ok(accel_tensor_set_requires_grad(input, 1));
  const accel_op_t *const op = find("accel::linear_cross_entropy", "");
  const accel_value_t args[] = {accel_arg_tensor(input), accel_arg_tensor(weight), accel_arg_tensor(target)};
  const char *const options[] = {"reduction", "chunk_size"};
  const accel_value_t values[] = {accel_arg_string("sum"), accel_arg_int(1)};
  accel_value_t loss = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  assert_ok(accel_op_call_kw(op, args, 3, options, values, 2, &loss, 1, &n_results));
  assert_int_equal(n_results, 1);
  accel_tensor_t *gradient = NULL;
  assert_ok(accel_tensor_backward(loss.as.tensor, NULL));
  assert_ok(accel_tensor_grad(input, &gradient));
  void *data = NULL;
  assert_ok(accel_tensor_data(gradient, &data));
  const float expected[] = {0.5f, -0.5f, 0, 0};
  assert_memory_equal(data, expected, sizeof expected);
  accel_tensor_release(gradient);
  const double number = take_number(&loss);
  assert_true(number > 0.6931 && number < 0.6932);

  const accel_value_t range[] = {args[0], args[1], accel_arg_tensor(outside)};
  assert_fails(accel_op_call(op, range, 3, &loss, 1, &n_results), ACCEL_ERROR_INVALID_ARGUMENT, "target of row 0 is 2");
  const accel_value_t shapes[] = {args[0], args[2], args[2]}, dtypes[] = {args[0], args[1], args[0]};
  assert_fails(accel_op_call(op, shapes, 3, &loss, 1, &n_results), ACCEL_ERROR_SHAPE_MISMATCH, "linear_weight [2]");
  assert_fails(accel_op_call(op, dtypes, 3, &loss, 1, &n_results), ACCEL_ERROR_SHAPE_MISMATCH,
               "target has shape [2, 2]");
  assert_fails(accel_op_call(op, args, 2, &loss, 1, &n_results), ACCEL_ERROR_INVALID_ARGUMENT, "lacks argument 2");
  const accel_op_t *none = NULL;
  assert_fails(accel_op_find("accel::linear_cross_entrpy", "", &none), ACCEL_ERROR_NOT_FOUND,
               "accel::linear_cross_entropy");
  assert_null(none);
  accel_tensor_release(outside);
  accel_tensor_release(target);
  accel_tensor_release(weight);
  accel_tensor_release(input);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_find),
      capi_unit_test(test_resolve),
      capi_unit_test(test_list),
      capi_unit_test(test_call),
      capi_unit_test(test_call_kw),
      capi_unit_test(test_call_refuses),
      capi_unit_test(test_scopes),
      capi_unit_test(test_cross_entropy),
      capi_unit_test(test_linear_cross_entropy),
      capi_unit_test(test_float32_precision),
  };
  return cmocka_run_group_tests_name("operator", tests, NULL, NULL);
}
