/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective against what this rank computes by itself. */
#include <string.h>

#include "rank_program.h"

static const int64_t kSizes[] = {1, 2, 3, 7, 63, 1025, 65537, 300001};
#define N_SIZES (sizeof kSizes / sizeof kSizes[0])

static const accel_dtype_t kNumbers[] = {ACCEL_DTYPE_UINT8,   ACCEL_DTYPE_INT8,    ACCEL_DTYPE_INT16,
                                         ACCEL_DTYPE_INT32,   ACCEL_DTYPE_INT64,   ACCEL_DTYPE_FLOAT16,
                                         ACCEL_DTYPE_FLOAT32, ACCEL_DTYPE_FLOAT64, ACCEL_DTYPE_BFLOAT16};
#define N_NUMBERS (sizeof kNumbers / sizeof kNumbers[0])
#define N_INTEGERS 5 /* the first of them */

/* Small whole numbers: any of these dtypes holds their sums and products exactly. */
static double input_at(int64_t i, int32_t rank) { return (double)((i * 7 + rank * 3 + i / 5) % 3); }

typedef struct case_of_reduction {
  accel_reduction_t reduction;
  int32_t ranks;
  int32_t rank;
  int64_t offset;
} case_of_reduction_t;

static double own_input(int64_t i, const void* context) {
  return input_at(i, ((const case_of_reduction_t*)context)->rank);
}

static double expected_at(int64_t i, const void* context) {
  const case_of_reduction_t* const c = context;
  double result = input_at(i + c->offset, 0);
  for (int32_t rank = 1; rank < c->ranks; rank++) {
    const double next = input_at(i + c->offset, rank);
    switch (c->reduction) {
      case ACCEL_REDUCE_MIN:
        result = next < result ? next : result;
        break;
      case ACCEL_REDUCE_MAX:
        result = next > result ? next : result;
        break;
      case ACCEL_REDUCE_PRODUCT:
        result *= next;
        break;
      case ACCEL_REDUCE_AND:
        result = (double)((int64_t)result & (int64_t)next);
        break;
      case ACCEL_REDUCE_OR:
        result = (double)((int64_t)result | (int64_t)next);
        break;
      case ACCEL_REDUCE_XOR:
        result = (double)((int64_t)result ^ (int64_t)next);
        break;
      default:
        result += next;
    }
  }
  return c->reduction == ACCEL_REDUCE_MEAN ? result / c->ranks : result;
}

static void check_reductions(accel_state_t* state, int64_t count, accel_dtype_t dtype, int32_t is_integer) {
  case_of_reduction_t c = {ACCEL_REDUCE_SUM, accel_num_processes(state), accel_process_index(state), 0};
  for (c.reduction = ACCEL_REDUCE_SUM; c.reduction <= ACCEL_REDUCE_XOR; c.reduction++) {
    if (c.reduction == ACCEL_REDUCE_MEAN ? is_integer : c.reduction >= ACCEL_REDUCE_AND && !is_integer) continue;
    c.offset = 0;
    accel_tensor_t* const tensor = make_tensor(count, dtype, own_input, &c);
    accel_tensor_t* const expected = make_tensor(count, dtype, expected_at, &c);
    CHECK(accel_all_reduce(state, tensor, c.reduction));
    EXPECT(same_tensors(tensor, expected));
    accel_tensor_release(expected);
    accel_tensor_release(tensor);

    accel_tensor_t* const parts = make_tensor(count * c.ranks, dtype, own_input, &c);
    accel_tensor_t* part = NULL;
    CHECK(accel_tensor_empty(&count, 1, dtype, &kCpu, &part));
    CHECK(accel_reduce_scatter(state, parts, c.reduction, part));
    c.offset = count * c.rank;
    accel_tensor_t* const expected_part = make_tensor(count, dtype, expected_at, &c);
    EXPECT(same_tensors(part, expected_part));
    accel_tensor_release(expected_part);
    accel_tensor_release(part);
    accel_tensor_release(parts);
  }
}

/* Moves are checked byte by byte, for every dtype. Bytes 0 and 1 are values of all of them, bool included. */
static unsigned char byte_at(size_t i, int32_t from, int32_t to) {
  return (unsigned char)((i * 2654435761U >> 7 ^ (size_t)(from * 5 + to * 3)) & 1);
}

static accel_tensor_t* make_bytes(int64_t count, accel_dtype_t dtype, int32_t from, int32_t to, int32_t n_to) {
  const size_t part = (size_t)count * accel_dtype_size(dtype);
  const int64_t total = count * n_to;
  unsigned char* const bytes = malloc(part * (size_t)n_to);
  accel_tensor_t* tensor = NULL;
  EXPECT(bytes != NULL);
  for (int32_t p = 0; p < n_to; p++)
    for (size_t i = 0; i < part; i++) bytes[(size_t)p * part + i] = byte_at(i, from, n_to == 1 ? to : p);
  CHECK(accel_tensor_from_data(bytes, &total, 1, dtype, &tensor));
  free(bytes);
  return tensor;
}

static void expect_bytes(accel_tensor_t* tensor, size_t offset, size_t size, int32_t from, int32_t to) {
  void* data = NULL;
  CHECK(accel_tensor_data(tensor, &data));
  const unsigned char* const bytes = (const unsigned char*)data + offset;
  for (size_t i = 0; i < size; i++) EXPECT(bytes[i] == byte_at(i, from, to));
}

static void check_moves(accel_state_t* state, int64_t count, accel_dtype_t dtype) {
  const int32_t ranks = accel_num_processes(state), rank = accel_process_index(state);
  const size_t size = (size_t)count * accel_dtype_size(dtype);
  const int64_t total = count * ranks;
  accel_tensor_t *const own = make_bytes(count, dtype, rank, 0, 1), *const parts =
                                                                        make_bytes(count, dtype, rank, 0, ranks);
  accel_tensor_t *one = NULL, *all = NULL;
  CHECK(accel_tensor_empty(&count, 1, dtype, &kCpu, &one));
  CHECK(accel_tensor_empty(&total, 1, dtype, &kCpu, &all));

  CHECK(accel_all_gather(state, own, all));
  for (int32_t from = 0; from < ranks; from++) expect_bytes(all, (size_t)from * size, size, from, 0);
  CHECK(accel_all_to_all(state, parts, all));
  for (int32_t from = 0; from < ranks; from++) expect_bytes(all, (size_t)from * size, size, from, rank);
  for (int32_t from = 0; from < ranks; from++) {
    CHECK(accel_scatter(state, rank == from ? parts : NULL, from, one));
    expect_bytes(one, 0, size, from, rank);
    CHECK(accel_tensor_copy(one, own));
    const accel_value_t value = accel_arg_tensor(one);
    CHECK(accel_broadcast(state, &value, from));
    expect_bytes(one, 0, size, from, 0);
  }
  /* Pairs of neighbours, even ranks first, so that nothing depends on buffers. */
  const int32_t other = rank ^ 1;
  if (other < ranks && rank % 2 == 0) {
    CHECK(accel_send(state, own, other, 3));
    CHECK(accel_recv(state, one, other, 4));
  } else if (other < ranks) {
    CHECK(accel_recv(state, one, other, 3));
    CHECK(accel_send(state, own, other, 4));
  }
  if (other < ranks) expect_bytes(one, 0, size, other, 0);
  accel_tensor_release(all);
  accel_tensor_release(one);
  accel_tensor_release(parts);
  accel_tensor_release(own);
}

/* The argument, if there is one, is the only size. */
void run_collectives(accel_state_t* state, const char* argument) {
  for (size_t s = 0; s < N_SIZES; s++) {
    if (argument != NULL && strtoll(argument, NULL, 10) != kSizes[s]) continue;
    for (size_t d = 0; d < N_NUMBERS; d++) check_reductions(state, kSizes[s], kNumbers[d], d < N_INTEGERS);
    for (accel_dtype_t dtype = ACCEL_DTYPE_UINT8; dtype <= ACCEL_DTYPE_UINT64; dtype++)
      check_moves(state, kSizes[s], dtype);
  }
  CHECK(accel_wait_for_everyone(state));
}

static void expect_json(const accel_value_t* value, const char* expected) {
  accel_buffer_t json = ACCEL_BUFFER_INIT;
  CHECK(accel_value_to_json(value, &json));
  if (strcmp(json.data, expected) != 0) {
    fprintf(stderr, "%s; expected %s\n", json.data, expected);
    exit(1);
  }
  accel_buffer_dispose(&json);
}

/* Values that differ in size between the ranks, padding, and the flag that any rank may raise. */
void run_objects(accel_state_t* state, const char* argument) {
  (void)argument;
  const int32_t ranks = accel_num_processes(state), rank = accel_process_index(state);
  char json[256] = "[", expected[1024] = "[";
  accel_value_t own = ACCEL_VALUE_INIT, all = ACCEL_VALUE_INIT;
  for (int32_t r = 0; r < ranks; r++)
    for (int32_t i = 0; i <= r; i++)
      snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%s\"%d.%d\"", r + i > 0 ? "," : "", r,
               i);
  for (int32_t i = 0; i <= rank; i++)
    snprintf(json + strlen(json), sizeof json - strlen(json), "%s\"%d.%d\"", i > 0 ? "," : "", rank, i);
  strcat(json, "]");
  strcat(expected, "]");
  CHECK(accel_value_from_json(json, &own));
  CHECK(accel_gather_object(state, &own, &all));
  expect_json(&all, expected);
  accel_value_dispose(&all);
  accel_value_dispose(&own);

  CHECK(accel_value_from_json(rank == ranks - 1 ? "[1,{\"a\":[null,\"x\"]}]" : "[null,null]", &own));
  CHECK(accel_broadcast_object_list(state, &own, ranks - 1, &all));
  expect_json(&all, "[1,{\"a\":[null,\"x\"]}]");
  accel_value_dispose(&all);
  accel_value_dispose(&own);

  const int64_t length = rank + 1;
  accel_tensor_t* tensor = NULL;
  CHECK(accel_tensor_full(&length, 1, rank, ACCEL_DTYPE_INT64, &kCpu, &tensor));
  const accel_value_t value = accel_arg_tensor(tensor);
  accel_value_t padded = ACCEL_VALUE_INIT, gathered = ACCEL_VALUE_INIT;
  CHECK(accel_pad_across_processes(state, &value, 0, -1, 0, &padded));
  CHECK(accel_gather(state, &padded, &gathered));
  void* data = NULL;
  CHECK(accel_tensor_data(gathered.as.tensor, &data));
  for (int32_t r = 0; r < ranks; r++)
    for (int32_t i = 0; i < ranks; i++) EXPECT(((const int64_t*)data)[r * ranks + i] == (i <= r ? r : -1));
  accel_value_dispose(&gathered);
  accel_value_dispose(&padded);
  accel_tensor_release(tensor);

  int32_t raised = 1;
  CHECK(accel_check_trigger(state, &raised));
  EXPECT(raised == 0);
  if (rank == ranks - 1) CHECK(accel_set_trigger(state));
  CHECK(accel_check_trigger(state, &raised));
  EXPECT(raised == 1);
  CHECK(accel_check_trigger(state, &raised));
  EXPECT(raised == 0);
}
