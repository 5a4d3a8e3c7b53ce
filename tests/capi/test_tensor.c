/* SPDX-License-Identifier: Apache-2.0 */
/* Section 5: tensors, and the dtypes and devices of section 2. */
#include "capi_test.h"

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};
static const accel_device_t kMeta = {ACCEL_DEVICE_META, -1};
static const float kNumbers[] = {1, 2, 3, 4, 5, 6};
static const int64_t kTwoByThree[] = {2, 3};

static void test_dtypes(void **state) {
  (void)state;
  for (accel_dtype_t dtype = ACCEL_DTYPE_UINT8; dtype <= ACCEL_DTYPE_UINT64; dtype++) {
    accel_dtype_t found = 0;
    assert_ok(accel_dtype_from_name(accel_dtype_name(dtype), &found));
    assert_int_equal(found, dtype);
    assert_true(accel_dtype_size(dtype) >= 1);
  }
  accel_dtype_t found = 42;
  assert_ok(accel_dtype_from_name("bf16", &found));
  assert_int_equal(found, ACCEL_DTYPE_BFLOAT16);
  assert_string_equal(accel_dtype_name(ACCEL_DTYPE_FLOAT32), "float32");
  assert_int_equal(accel_dtype_size(ACCEL_DTYPE_COMPLEX128), 16);
  assert_null(accel_dtype_name(0));
  assert_int_equal(accel_dtype_size(ACCEL_UNSET), 0);
  const struct {
    const char *name;
    double bytes;
  } sizes[] = {{"bool", 0.125}, {"int2", 0.25}, {"int4", 0.5}, {"fp8", 1},     {"float8_e4m3fn", 1},
               {"int8", 1},     {"bf16", 2},    {"int64", 8},  {"float32", 4}, {"complex64", 8}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    double bytes = 0;
    assert_ok(accel_dtype_byte_size(sizes[i].name, &bytes));
    assert_true(bytes == sizes[i].bytes);
  }
  double unknown = 7;
  assert_fails(accel_dtype_byte_size("int3", &unknown), ACCEL_ERROR_NOT_FOUND, "'int3'");
  assert_true(unknown == 7);
  assert_fails(accel_dtype_from_name("float31", &found), ACCEL_ERROR_NOT_FOUND, "'float31'");
  assert_fails(accel_dtype_from_name(NULL, &found), ACCEL_ERROR_INVALID_ARGUMENT, "name is NULL");
  assert_fails(accel_dtype_from_name("bool", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(found, ACCEL_DTYPE_BFLOAT16);
}

static void test_devices(void **state) {
  (void)state;
  accel_device_t device = {42, 42};
  assert_ok(accel_device_parse("cuda:1", &device));
  assert_int_equal(device.type, ACCEL_DEVICE_CUDA);
  assert_int_equal(device.index, 1);
  assert_ok(accel_device_parse("cpu", &device));
  assert_int_equal(device.index, -1);
  assert_fails(accel_device_parse("tpu", &device), ACCEL_ERROR_INVALID_ARGUMENT, "'tpu'");
  /* None of these can be used here: those with a type of LibTorch can be named, the others need their plugin for it. */
  const char *const names[] = {"mps",    "mlu", "sdaa", "musa", "npu", "hpu", "xpu",
                               "neuron", "xla", "mtia", "maia", "ipu", "ve"};
  for (int32_t i = 0; i < 13; i++) {
    const accel_device_t kind = {ACCEL_DEVICE_MPS + i, 0};
    accel_tensor_t *tensor = NULL;
    const accel_status_t parsed = accel_device_parse(names[i], &device);
    assert_true(parsed == ACCEL_OK ? device.type == kind.type : parsed == ACCEL_ERROR_UNSUPPORTED);
    assert_string_equal(accel_device_type_name(kind.type), names[i]);
    assert_fails(accel_tensor_full(NULL, 0, 1, ACCEL_DTYPE_FLOAT32, &kind, &tensor), ACCEL_ERROR_UNSUPPORTED, "");
    assert_int_equal(accel_device_count(kind.type), 0);
    assert_int_equal(accel_is_available(names[i]), 0);
  }
  assert_int_equal(ACCEL_DEVICE_VE - ACCEL_DEVICE_MPS, 12);
  assert_null(accel_device_type_name(ACCEL_DEVICE_OUT_OF_TREE));
  assert_null(accel_device_type_name(-1));
  assert_fails(accel_device_parse(NULL, &device), ACCEL_ERROR_INVALID_ARGUMENT, "text is NULL");
  assert_fails(accel_device_parse("cpu", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(accel_device_count(ACCEL_DEVICE_CPU), 1);
  assert_true(accel_device_count(ACCEL_DEVICE_CUDA) >= 0);
  assert_int_equal(accel_device_count(99), 0);
}

static void test_device_of_the_host(void **state) {
  (void)state;
  accel_device_t device = {42, 42};
  accel_value_t value = ACCEL_VALUE_INIT;
  int64_t number = 42;
  assert_ok(accel_device_current(ACCEL_DEVICE_CPU, &device));
  assert_int_equal(device.index, 0);
  assert_fails(accel_device_current(ACCEL_DEVICE_HPU, &device), ACCEL_ERROR_UNSUPPORTED, "the plugin of hpu");
  assert_ok(accel_device_set_current(&kCpu));
  assert_ok(accel_device_synchronize(&kCpu));
  assert_ok(accel_device_empty_cache(&kCpu));
  assert_fails(accel_device_memory(&kCpu, &value), ACCEL_ERROR_UNSUPPORTED, "counts no memory");
  assert_fails(accel_device_reset_peak_memory(&kCpu), ACCEL_ERROR_UNSUPPORTED, "counts no memory");
  assert_ok(accel_device_properties(&kCpu, &value));
  assert_ok(accel_value_as_int(accel_value_get(&value, "count"), &number));
  assert_int_equal(number, 1);
  accel_value_dispose(&value);
}

static void test_create(void **state) {
  (void)state;
  accel_tensor_t *empty = NULL, *full = NULL, *normal = NULL, *integers = NULL;
  assert_ok(accel_tensor_empty(kTwoByThree, 2, ACCEL_DTYPE_BFLOAT16, &kCpu, &empty));
  size_t ndim = 0, nbytes = 0;
  const int64_t *shape = NULL, *strides = NULL;
  accel_dtype_t dtype = 0;
  accel_device_t device = kMeta;
  int64_t numel = 0;
  assert_ok(accel_tensor_ndim(empty, &ndim));
  assert_ok(accel_tensor_shape(empty, &shape));
  assert_ok(accel_tensor_strides(empty, &strides));
  assert_ok(accel_tensor_dtype(empty, &dtype));
  assert_ok(accel_tensor_device(empty, &device));
  assert_ok(accel_tensor_numel(empty, &numel));
  assert_ok(accel_tensor_nbytes(empty, &nbytes));
  assert_int_equal(ndim, 2);
  assert_int_equal(shape[1], 3);
  assert_int_equal(strides[0], 3);
  assert_int_equal(dtype, ACCEL_DTYPE_BFLOAT16);
  assert_int_equal(device.type, ACCEL_DEVICE_CPU);
  assert_int_equal(numel, 6);
  assert_int_equal(nbytes, 12);
  accel_tensor_release(empty);

  double number = 0;
  assert_ok(accel_tensor_full(NULL, 0, 2.5, ACCEL_DTYPE_FLOAT64, &kCpu, &full));
  assert_ok(accel_tensor_item(full, &number));
  assert_true(number == 2.5);
  accel_tensor_release(full);

  const int64_t thousand = 1000;
  assert_ok(accel_tensor_randn(&thousand, 1, ACCEL_DTYPE_FLOAT32, &kCpu, &normal));
  accel_tensor_release(normal);
  assert_ok(accel_tensor_randint(-2, 3, &thousand, 1, &integers));
  void *data = NULL;
  assert_ok(accel_tensor_data(integers, &data));
  for (int64_t i = 0; i < thousand; i++) assert_in_range(((const int64_t *)data)[i] + 2, 0, 4);
  accel_tensor_release(integers);
}

// Regression: numbers that no element type or memory holds were reported as a defect of the library.
static void test_create_refuses(void **state) {
  (void)state;
  const int64_t negative[] = {2, -1}, large[] = {INT64_MAX, 2};
  accel_tensor_t *out = NULL;
  assert_fails(accel_tensor_empty(negative, 2, ACCEL_DTYPE_INT8, &kCpu, &out), ACCEL_ERROR_INVALID_ARGUMENT, "size -1");
  assert_fails(accel_tensor_empty(large, 2, ACCEL_DTYPE_INT8, &kCpu, &out), ACCEL_ERROR_INVALID_ARGUMENT, "more bytes");
  assert_fails(accel_tensor_empty(large, 1, ACCEL_DTYPE_INT8, &kCpu, &out), ACCEL_ERROR_OUT_OF_MEMORY, "");
  assert_fails(accel_tensor_empty(NULL, 1, ACCEL_DTYPE_INT8, &kCpu, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "shape is NULL");
  assert_fails(accel_tensor_empty(kTwoByThree, 2, 0, &kCpu, &out), ACCEL_ERROR_INVALID_ARGUMENT, "dtype 0");
  assert_fails(accel_tensor_full(kTwoByThree, 2, 1, ACCEL_DTYPE_INT8, &(accel_device_t){99, 0}, &out),
               ACCEL_ERROR_INVALID_ARGUMENT, "device type 9");
  assert_fails(accel_tensor_full(kTwoByThree, 2, 300, ACCEL_DTYPE_INT8, &kCpu, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "without overflow");
  assert_fails(accel_tensor_randn(kTwoByThree, 2, ACCEL_DTYPE_INT64, &kCpu, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "int64");
  assert_fails(accel_tensor_randint(0, 0, kTwoByThree, 2, &out), ACCEL_ERROR_INVALID_ARGUMENT, "empty");
  assert_fails(accel_tensor_from_data(NULL, kTwoByThree, 2, ACCEL_DTYPE_INT8, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "data is NULL");
  assert_fails(accel_tensor_empty(kTwoByThree, 2, ACCEL_DTYPE_INT8, &kCpu, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "out is NULL");
  assert_null(out);
}

static void count_call(void *user_data) { ++*(int *)user_data; }

static void test_from_blob(void **state) {
  (void)state;
  float numbers[] = {1, 2, 3, 4, 5, 6};
  const int64_t strides[] = {1, 2};
  int calls = 0;
  accel_tensor_t *tensor = NULL, *view = NULL;
  assert_ok(accel_tensor_from_blob(numbers, kTwoByThree, 2, strides, ACCEL_DTYPE_FLOAT32, &kCpu, &calls, count_call,
                                   &tensor));
  int32_t is_contiguous = 42;
  assert_ok(accel_tensor_is_contiguous(tensor, &is_contiguous));
  assert_int_equal(is_contiguous, 0);
  assert_ok(accel_tensor_detach(tensor, &view));
  accel_tensor_release(tensor);
  assert_int_equal(calls, 0);
  void *data = NULL;
  assert_ok(accel_tensor_data(view, &data));
  assert_ptr_equal(data, numbers);
  accel_tensor_release(view);
  assert_int_equal(calls, 1);

  const int64_t negative[] = {1, -2};
  assert_fails(accel_tensor_from_blob(numbers, kTwoByThree, 2, negative, ACCEL_DTYPE_FLOAT32, &kCpu, &calls, count_call,
                                      &tensor),
               ACCEL_ERROR_INVALID_ARGUMENT, "stride -2");
  assert_int_equal(calls, 2);
  assert_fails(
      accel_tensor_from_blob(numbers, kTwoByThree, 2, NULL, ACCEL_DTYPE_FLOAT32, &kMeta, &calls, count_call, &tensor),
      ACCEL_ERROR_INVALID_ARGUMENT, "meta");
  assert_int_equal(calls, 3);
  assert_fails(
      accel_tensor_from_blob(numbers, kTwoByThree, 2, NULL, ACCEL_DTYPE_FLOAT32, &kCpu, &calls, count_call, NULL),
      ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(calls, 4);
  assert_ok(accel_tensor_from_blob(numbers, kTwoByThree, 2, NULL, ACCEL_DTYPE_FLOAT32, &kCpu, NULL, NULL, &tensor));
  accel_tensor_release(tensor);
}

static void test_read(void **state) {
  (void)state;
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kTwoByThree, 2, ACCEL_DTYPE_FLOAT32);
  const int64_t large = INT64_MAX;
  accel_tensor_t *const integer = new_test_tensor(&large, NULL, 0, ACCEL_DTYPE_INT64);
  accel_tensor_t *meta = NULL;
  assert_ok(accel_tensor_empty(NULL, 0, ACCEL_DTYPE_FLOAT32, &kMeta, &meta));
  double number = 42;
  int64_t exact = 42;
  void *data = NULL;
  assert_ok(accel_tensor_item_int(integer, &exact));
  assert_true(exact == INT64_MAX);
  assert_fails(accel_tensor_item(tensor, &number), ACCEL_ERROR_SHAPE_MISMATCH, "[2, 3]");
  assert_fails(accel_tensor_item_int(tensor, &exact), ACCEL_ERROR_TYPE_MISMATCH, "float32");
  assert_fails(accel_tensor_item(meta, &number), ACCEL_ERROR_INVALID_STATE, "meta");
  assert_fails(accel_tensor_data(meta, &data), ACCEL_ERROR_INVALID_STATE, "meta");
  assert_fails(accel_tensor_numel(NULL, &exact), ACCEL_ERROR_INVALID_ARGUMENT, "tensor is NULL");
  assert_fails(accel_tensor_numel(tensor, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_scope_t *scope = NULL;
  assert_ok(accel_no_grad_begin(&scope));
  assert_fails(accel_tensor_numel((accel_tensor_t *)(void *)scope, &exact), ACCEL_ERROR_INVALID_HANDLE,
               "scope; expected a tensor");
  assert_ok(accel_scope_end(scope));
  assert_true(number == 42 && data == NULL);
  assert_ptr_equal(accel_tensor_retain(tensor), tensor);
  accel_tensor_release(tensor);
  accel_tensor_release(tensor);
  accel_tensor_release(integer);
  accel_tensor_release(meta);
  accel_tensor_release(NULL);
}

static accel_value_t product_of(accel_tensor_t *a, accel_tensor_t *b) {
  const accel_op_t *op = NULL;
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  const accel_value_t factors[] = {accel_arg_tensor(a), accel_arg_tensor(b)};
  assert_ok(accel_op_find("aten::mul", "Tensor", &op));
  assert_ok(accel_op_call(op, factors, 2, &result, 1, &n_results));
  return result;
}

static double gradient_of(const accel_tensor_t *leaf) {
  accel_tensor_t *gradient = NULL;
  double number = 0;
  assert_ok(accel_tensor_grad(leaf, &gradient));
  if (gradient == NULL) return -1;
  assert_ok(accel_tensor_item(gradient, &number));
  accel_tensor_release(gradient);
  return number;
}

/* x^2 of x = 3, whose gradient is 2 x, and whose gradient again is 2. */
static void test_elements(void **state) {
  (void)state;
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3}, turned[] = {1, 3}, three_by_two[] = {3, 2};
  accel_tensor_t *const tensor = new_test_tensor(numbers, shape, 2, ACCEL_DTYPE_FLOAT32);
  void *found = NULL, *data = NULL;
  int64_t count = 0;
  assert_ok(accel_tensor_elements(tensor, ACCEL_DTYPE_FLOAT32, &found, &count));
  assert_int_equal(count, 6);
  assert_memory_equal(found, numbers, sizeof numbers);
  ((float *)found)[5] = 7; /* the tensor's own memory */
  assert_ok(accel_tensor_data(tensor, &data));
  assert_ptr_equal(data, found);
  accel_tensor_release(tensor);

  const int64_t none[] = {0, 3};
  accel_tensor_t *const empty = new_test_tensor(NULL, none, 2, ACCEL_DTYPE_INT64);
  assert_ok(accel_tensor_elements(empty, ACCEL_DTYPE_INT64, &found, &count));
  assert_int_equal(count, 0);
  found = NULL;
  count = -1;
  assert_fails(accel_tensor_elements(empty, ACCEL_DTYPE_FLOAT32, &found, &count), ACCEL_ERROR_TYPE_MISMATCH,
               "the tensor is of int64 and is to be read as float32");
  assert_fails(accel_tensor_elements(empty, ACCEL_DTYPE_INT64, NULL, &count), ACCEL_ERROR_INVALID_ARGUMENT, "NULL");
  assert_fails(accel_tensor_elements(empty, ACCEL_DTYPE_INT64, &found, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "NULL");
  accel_tensor_release(empty);

  float memory[6] = {0};
  accel_tensor_t *transposed = NULL, *meta = NULL;
  assert_ok(
      accel_tensor_from_blob(memory, three_by_two, 2, turned, ACCEL_DTYPE_FLOAT32, &kCpu, NULL, NULL, &transposed));
  assert_fails(accel_tensor_elements(transposed, ACCEL_DTYPE_FLOAT32, &found, &count), ACCEL_ERROR_INVALID_STATE,
               "the tensor of shape [3, 2] has strides [1, 3]; expected elements without gaps");
  assert_ok(accel_tensor_empty(NULL, 0, ACCEL_DTYPE_FLOAT32, &kMeta, &meta));
  assert_fails(accel_tensor_elements(meta, ACCEL_DTYPE_FLOAT32, &found, &count), ACCEL_ERROR_INVALID_STATE, "meta");
  assert_null(found);
  assert_int_equal(count, -1);
  accel_tensor_release(meta);
  accel_tensor_release(transposed);
}

static void test_backward_options(void **state) {
  (void)state;
  const float three = 3, ten = 10;
  const int64_t one_row[] = {1};
  accel_backward_options_t options = ACCEL_BACKWARD_OPTIONS_INIT, made;
  assert_ok(accel_options_init(ACCEL_OPTIONS_BACKWARD, &made, sizeof made));
  assert_memory_equal(&options, &made, sizeof options);
  assert_fails(accel_options_init(ACCEL_OPTIONS_BACKWARD, NULL, 8), ACCEL_ERROR_INVALID_ARGUMENT, "options is NULL");
  accel_tensor_t *const x = new_test_tensor(&three, one_row, 1, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const other = new_test_tensor(&ten, one_row, 1, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_tensor_set_requires_grad(x, 1));
  assert_ok(accel_tensor_set_requires_grad(other, 1));
  const accel_value_t one = accel_arg_tensor(x), number = accel_arg_int(1);

  accel_value_t square = product_of(x, x);
  options.retain_graph = 1;
  assert_ok(accel_tensor_backward(square.as.tensor, &options));
  assert_ok(accel_tensor_backward(square.as.tensor, NULL));
  assert_true(gradient_of(x) == 12);
  assert_fails(accel_tensor_backward(square.as.tensor, NULL), ACCEL_ERROR_TORCH, "backward");
  accel_value_dispose(&square);

  assert_ok(accel_options_init(ACCEL_OPTIONS_BACKWARD, &options, sizeof options));
  options.create_graph = 1;
  assert_ok(accel_tensor_set_grad(x, NULL));
  square = product_of(x, x);
  assert_ok(accel_tensor_backward(square.as.tensor, &options));
  accel_tensor_t *slope = NULL;
  assert_ok(accel_tensor_grad(x, &slope));
  assert_ok(accel_tensor_set_grad(x, NULL));
  assert_ok(accel_tensor_backward(slope, NULL));
  assert_true(gradient_of(x) == 2);
  accel_tensor_release(slope);
  accel_value_dispose(&square);

  assert_ok(accel_options_init(ACCEL_OPTIONS_BACKWARD, &options, sizeof options));
  square = product_of(x, other);
  options.inputs = &number;
  assert_fails(accel_tensor_backward(square.as.tensor, &options), ACCEL_ERROR_TYPE_MISMATCH,
               "options.inputs has a int");
  options.inputs = &square;
  assert_fails(accel_tensor_backward(square.as.tensor, &options), ACCEL_ERROR_INVALID_ARGUMENT, "was computed");
  options.inputs = &one;
  options.create_graph = 2;
  assert_fails(accel_tensor_backward(square.as.tensor, &options), ACCEL_ERROR_INVALID_ARGUMENT, "create_graph is 2");
  options.create_graph = ACCEL_UNSET;
  options.gradient = other;
  assert_ok(accel_tensor_set_grad(x, NULL));
  assert_ok(accel_tensor_backward(square.as.tensor, &options));
  assert_true(gradient_of(x) == 100);
  assert_true(gradient_of(other) == -1);
  accel_value_dispose(&square);
  accel_tensor_release(other);
  accel_tensor_release(x);
}

static void test_gradient(void **state) {
  (void)state;
  const float three = 3;
  accel_tensor_t *const leaf = new_test_tensor(&three, NULL, 0, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *copy = NULL, *gradient = NULL;
  int32_t requires_grad = 42;
  assert_fails(accel_tensor_set_requires_grad(leaf, 7), ACCEL_ERROR_INVALID_ARGUMENT, "requires_grad is 7");
  assert_fails(accel_tensor_backward(leaf, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "without gradients");
  assert_ok(accel_tensor_set_requires_grad(leaf, 1));
  assert_ok(accel_tensor_requires_grad(leaf, &requires_grad));
  assert_int_equal(requires_grad, 1);
  assert_ok(accel_tensor_grad(leaf, &gradient));
  assert_null(gradient);

  assert_ok(accel_tensor_clone(leaf, &copy));
  assert_fails(accel_tensor_set_requires_grad(copy, 0), ACCEL_ERROR_INVALID_STATE, "expected a leaf");
  assert_ok(accel_tensor_backward(copy, NULL));
  assert_ok(accel_tensor_grad(leaf, &gradient));
  double number = 0;
  assert_ok(accel_tensor_item(gradient, &number));
  assert_true(number == 1);
  accel_tensor_release(gradient);

  assert_ok(accel_tensor_set_grad(leaf, NULL));
  assert_ok(accel_tensor_grad(leaf, &gradient));
  assert_null(gradient);
  const float five = 5, pair[] = {1, 2};
  const int64_t two = 2, one = 1;
  accel_tensor_t *const given = new_test_tensor(&five, NULL, 0, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const larger = new_test_tensor(pair, &two, 1, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const integer = new_test_tensor(&one, NULL, 0, ACCEL_DTYPE_INT64);
  assert_ok(accel_tensor_set_grad(leaf, given));
  assert_ok(accel_tensor_grad(leaf, &gradient));
  assert_ok(accel_tensor_item(gradient, &number));
  assert_true(number == 5);
  assert_fails(accel_tensor_set_grad(leaf, larger), ACCEL_ERROR_SHAPE_MISMATCH, "expected []");
  assert_fails(accel_tensor_set_grad(leaf, integer), ACCEL_ERROR_TYPE_MISMATCH, "expected float32");
  assert_fails(accel_tensor_set_grad(copy, given), ACCEL_ERROR_INVALID_STATE, "expected a leaf");
  accel_tensor_release(gradient);
  accel_tensor_release(integer);
  accel_tensor_release(larger);
  accel_tensor_release(given);
  accel_tensor_release(copy);
  accel_tensor_release(leaf);
}

static void test_convert(void **state) {
  (void)state;
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kTwoByThree, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *out = NULL, *target = NULL, *meta = NULL;
  void *before = NULL, *after = NULL;
  accel_dtype_t dtype = 0;
  assert_ok(accel_tensor_data(tensor, &before));
  assert_ok(accel_tensor_to(tensor, ACCEL_UNSET, &kCpu, 0, &out));
  assert_ok(accel_tensor_data(out, &after));
  assert_ptr_equal(before, after);
  accel_tensor_release(out);
  assert_ok(accel_tensor_to(tensor, ACCEL_DTYPE_INT8, &kCpu, 1, &out));
  assert_ok(accel_tensor_dtype(out, &dtype));
  assert_int_equal(dtype, ACCEL_DTYPE_INT8);
  assert_ok(accel_tensor_to(tensor, ACCEL_UNSET, &kMeta, 0, &meta));

  const int64_t three = 3;
  assert_ok(accel_tensor_empty(kTwoByThree, 2, ACCEL_DTYPE_FLOAT64, &kCpu, &target));
  assert_ok(accel_tensor_copy(target, out));
  assert_ok(accel_tensor_data(target, &after));
  assert_true(((const double *)after)[5] == 6);
  accel_tensor_release(out);
  assert_ok(accel_tensor_full(&three, 1, 9, ACCEL_DTYPE_INT32, &kCpu, &out));
  assert_ok(accel_tensor_copy(target, out));
  assert_true(((const double *)after)[5] == 9);
  assert_fails(accel_tensor_copy(out, target), ACCEL_ERROR_SHAPE_MISMATCH, "[2, 3]");
  accel_tensor_release(out);

  out = NULL;
  assert_fails(accel_tensor_to(tensor, 99, &kCpu, 0, &out), ACCEL_ERROR_INVALID_ARGUMENT, "dtype 99");
  assert_fails(accel_tensor_to(tensor, ACCEL_UNSET, &kCpu, 2, &out), ACCEL_ERROR_INVALID_ARGUMENT, "non_blocking is 2");
  assert_fails(accel_tensor_copy(tensor, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "source is NULL");
  assert_fails(accel_tensor_clone(tensor, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(out);
  assert_ok(accel_tensor_contiguous(tensor, &out));
  accel_tensor_release(out);
  accel_tensor_release(target);
  accel_tensor_release(meta);
  accel_tensor_release(tensor);
}

/* The ABI of DLPack before version 1, whose header the library does not ship. */
struct DLManagedTensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t dtype_code, dtype_bits;
  uint16_t dtype_lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *);
};

static void count_deletion(struct DLManagedTensor *managed) { ++*(int *)managed->manager_ctx; }

static void test_dlpack(void **state) {
  (void)state;
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kTwoByThree, 2, ACCEL_DTYPE_FLOAT32);
  struct DLManagedTensorVersioned *versioned = NULL;
  struct DLManagedTensor *unversioned = NULL;
  accel_tensor_t *first = NULL, *second = NULL;
  assert_ok(accel_tensor_to_dlpack(tensor, &versioned));
  assert_ok(accel_tensor_to_dlpack_unversioned(tensor, &unversioned));
  assert_int_equal(unversioned->ndim, 2);
  assert_ok(accel_tensor_from_dlpack(versioned, &first));
  assert_ok(accel_tensor_from_dlpack_unversioned(unversioned, &second));
  void *before = NULL, *after = NULL;
  assert_ok(accel_tensor_data(tensor, &before));
  accel_tensor_release(tensor);
  assert_ok(accel_tensor_data(first, &after));
  assert_ptr_equal(before, after);
  assert_ok(accel_tensor_data(second, &after));
  assert_ptr_equal(before, after);
  accel_tensor_release(first);
  accel_tensor_release(second);
}

static void test_dlpack_refuses(void **state) {
  (void)state;
  int deletions = 0;
  float numbers[] = {1, 2};
  int64_t shape[] = {2};
  struct DLManagedTensor managed = {numbers, 1, 0, 1, 2, 32, 1, shape, NULL, 0, &deletions, count_deletion};
  accel_tensor_t *out = NULL;
  assert_fails(accel_tensor_from_dlpack_unversioned(&managed, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(deletions, 1);
  managed.dtype_code = 99;
  assert_fails(accel_tensor_from_dlpack_unversioned(&managed, &out), ACCEL_ERROR_UNSUPPORTED, "code 99");
  assert_int_equal(deletions, 2);
  assert_fails(accel_tensor_from_dlpack(NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT, "tensor is NULL");
  assert_null(out);

  accel_tensor_t *const leaf = new_test_tensor(kNumbers, kTwoByThree, 2, ACCEL_DTYPE_FLOAT32);
  struct DLManagedTensorVersioned *lent = NULL;
  assert_ok(accel_tensor_set_requires_grad(leaf, 1));
  assert_fails(accel_tensor_to_dlpack(leaf, &lent), ACCEL_ERROR_INVALID_ARGUMENT, "detach it first");
  assert_fails(accel_tensor_to_dlpack(leaf, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_fails(accel_tensor_to_dlpack_unversioned(NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "tensor is NULL");
  assert_null(lent);
  accel_tensor_release(leaf);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_device_of_the_host),
      capi_unit_test(test_dtypes),
      capi_unit_test(test_devices),
      capi_unit_test(test_create),
      capi_unit_test(test_create_refuses),
      capi_unit_test(test_from_blob),
      capi_unit_test(test_read),
      capi_unit_test(test_elements),
      capi_unit_test(test_backward_options),
      capi_unit_test(test_gradient),
      capi_unit_test(test_convert),
      capi_unit_test(test_dlpack),
      capi_unit_test(test_dlpack_refuses),
  };
  return cmocka_run_group_tests_name("tensor", tests, NULL, NULL);
}
