/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program: it knows the header and what is installed. Prints the doubles of all ranks, counted from 1. */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

int main(void) {
  const int64_t shape[] = {2};
  accel_state_t *state = NULL;
  accel_tensor_t *tensor = NULL;
  const accel_op_t *add = NULL;
  accel_value_t sum = ACCEL_VALUE_INIT;
  accel_value_t gathered = ACCEL_VALUE_INIT;
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  size_t n_results = 0;
  accel_value_t args[2];
  CHECK(accel_state_create(NULL, &state));
  CHECK(accel_tensor_full(shape, 1, accel_process_index(state) + 1, ACCEL_DTYPE_INT64, accel_device(state), &tensor));
  CHECK(accel_op_find("aten::add", "Tensor", &add));
  args[0] = args[1] = accel_arg_tensor(tensor);
  CHECK(accel_op_call(add, args, 2, &sum, 1, &n_results));
  CHECK(accel_gather(state, &sum, &gathered));
  CHECK(accel_value_to_json(&gathered, &text));
  CHECK(accel_print(state, text.data));
  CHECK(accel_end_training(state));
  accel_buffer_dispose(&text);
  accel_value_dispose(&gathered);
  accel_value_dispose(&sum);
  accel_tensor_release(tensor);
  accel_state_release(state);
  return accel_debug_live_objects() == 0 ? 0 : 1;
}
