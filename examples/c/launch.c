/* Starts its ranks itself, and all of them see all ranks: ./launch 4 */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>

/* What each process does. An error that it returns is that of accel_launch(), with its message. */
static accel_status_t meet(int32_t local_process_index, void *greeting) {
  accel_state_t *state = NULL;
  accel_tensor_t *rank = NULL;
  accel_value_t ranks = ACCEL_VALUE_INIT;
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  accel_status_t status = accel_state_create(NULL, &state);
  if (status >= 0)
    status = accel_tensor_full(NULL, 0, local_process_index, ACCEL_DTYPE_INT64, accel_device(state), &rank);
  if (status >= 0) {
    const accel_value_t mine = accel_arg_tensor(rank);
    status = accel_gather(state, &mine, &ranks);
  }
  if (status >= 0) status = accel_value_to_json(&ranks, &text);
  if (status >= 0 && accel_is_main_process(state) == 1) printf("%s %s\n", (const char *)greeting, text.data);
  accel_buffer_dispose(&text);
  accel_value_dispose(&ranks);
  accel_tensor_release(rank);
  accel_state_release(state);
  return status;
}

int main(int count, char **arguments) {
  accel_launch_options_t options = ACCEL_LAUNCH_OPTIONS_INIT;
  options.num_processes = count > 1 ? atoi(arguments[1]) : 2;
  /* The memory of this process is that of its copies, too. */
  if (accel_launch(&options, meet, "ranks", NULL) == ACCEL_OK) return 0;
  fprintf(stderr, "%s\n", accel_last_error());
  return 1;
}
