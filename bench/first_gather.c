/* SPDX-License-Identifier: Apache-2.0 */
/* Workload launch: what each process does between its start and its end. bench/run times the launcher around it. */
#include "measure.h"

#include <stdio.h>

int main(void) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));

  const int64_t rank = accel_process_index(state), one_row = 1;
  accel_tensor_t *mine = NULL;
  accel_value_t ranks = ACCEL_VALUE_INIT;
  void *data = NULL;
  int64_t count = 0;
  CHECK(accel_tensor_from_data(&rank, &one_row, 1, ACCEL_DTYPE_INT64, &mine));
  const accel_value_t argument = accel_arg_tensor(mine);
  CHECK(accel_gather(state, &argument, &ranks));
  CHECK(accel_tensor_data(ranks.as.tensor, &data));
  CHECK(accel_tensor_numel(ranks.as.tensor, &count));
  int wrong = count != accel_num_processes(state);
  for (int64_t i = 0; i < count; i++) wrong |= ((const int64_t *)data)[i] != i;
  if (wrong) fprintf(stderr, "the gathered ranks are not 0, 1, ...\n");

  CHECK(accel_end_training(state));
  accel_value_dispose(&ranks);
  accel_tensor_release(mine);
  accel_state_release(state);
  return wrong;
}
