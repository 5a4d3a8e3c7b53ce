/* Every process says its rank, and all of them see all ranks: accel launch --num-processes 2 -- ./hello */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

int main(void) {
  accel_state_t *state = NULL;
  accel_tensor_t *rank = NULL;
  accel_value_t ranks = ACCEL_VALUE_INIT;
  CHECK(accel_state_create(NULL, &state));
  CHECK(accel_tensor_full(NULL, 0, accel_process_index(state), ACCEL_DTYPE_INT64, accel_device(state), &rank));
  const accel_value_t mine = accel_arg_tensor(rank);
  CHECK(accel_gather(state, &mine, &ranks));
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  CHECK(accel_value_to_json(&ranks, &text));
  CHECK(accel_print(state, text.data));
  CHECK(accel_end_training(state));
  accel_buffer_dispose(&text);
  accel_value_dispose(&ranks);
  accel_tensor_release(rank);
  accel_state_release(state);
}
