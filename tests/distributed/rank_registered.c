/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a program that is registered as parameters: steps over several processes, and a rank that dies between two.
 */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <signal.h>
#include <string.h>

#include "rank_program.h"

#define ROWS 7
#define COLUMNS 5
#define ELEMENTS (ROWS * COLUMNS)
#define STEPS 6
#define LR 0.25

typedef struct program {
  float weight[ELEMENTS], bias[COLUMNS];
  accel_parameters_t* parameters;
  accel_module_t* module;
  accel_optimizer_t *plain, *optimizer;
} program_t;

static accel_value_t map_over(float* weight, float* bias) {
  const int64_t shapes[2][2] = {{ROWS, COLUMNS}, {COLUMNS, 0}};
  const char* const names[2] = {"layer.weight", "bias"};
  accel_value_t map = ACCEL_VALUE_INIT;
  CHECK(accel_value_map(&map));
  for (int i = 0; i < 2; i++) {
    accel_tensor_t* tensor = NULL;
    CHECK(accel_tensor_from_blob(i == 0 ? weight : bias, shapes[i], i == 0 ? 2 : 1, NULL, ACCEL_DTYPE_FLOAT32, &kCpu,
                                 NULL, NULL, &tensor));
    const accel_value_t item = accel_arg_tensor(tensor);
    CHECK(accel_value_set(&map, names[i], &item));
    accel_tensor_release(tensor);
  }
  return map;
}

/* Every rank begins with other values; those of rank 0 count. */
static void begin(program_t* program, accel_state_t* state, int is_sharded) {
  const int rank = accel_process_index(state);
  accel_parameters_options_t options = ACCEL_PARAMETERS_OPTIONS_INIT;
  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  fsdp.enabled = is_sharded;
  options.fsdp = &fsdp;
  for (int i = 0; i < ELEMENTS; i++) program->weight[i] = (float)(i + 100 * rank);
  for (int i = 0; i < COLUMNS; i++) program->bias[i] = (float)rank;
  accel_value_t tensors = map_over(program->weight, program->bias);
  CHECK(accel_parameters_register(state, &tensors, &options, &program->parameters));
  accel_value_dispose(&tensors);
  CHECK(accel_parameters_module(program->parameters, &program->module));
  sgd.lr = LR;
  CHECK(accel_optimizer_sgd(program->module, &sgd, &program->plain));
  CHECK(accel_prepare_optimizer(state, program->plain, &program->optimizer));
}

/* To the mean of the ranks' goals, which are their numbers. */
static accel_status_t step(program_t* program, int rank) {
  float weight[ELEMENTS], bias[COLUMNS];
  for (int i = 0; i < ELEMENTS; i++) weight[i] = program->weight[i] - (float)rank;
  for (int i = 0; i < COLUMNS; i++) bias[i] = program->bias[i] - (float)rank;
  accel_value_t gradients = map_over(weight, bias);
  const accel_status_t status = accel_parameters_step(program->parameters, program->optimizer, &gradients, NULL, NULL);
  accel_value_dispose(&gradients);
  return status;
}

static void end(program_t* program) {
  accel_optimizer_release(program->optimizer);
  accel_optimizer_release(program->plain);
  accel_module_release(program->module);
  accel_parameters_release(program->parameters);
}

void run_registered_parameters(accel_state_t* state, const char* argument) {
  (void)argument;
  const int rank = accel_process_index(state);
  const double mean = (accel_num_processes(state) - 1) / 2.0;
  for (int is_sharded = 0; is_sharded < 2; is_sharded++) {
    program_t program;
    begin(&program, state, is_sharded);
    const double left = pow(1 - LR, STEPS); /* of the distance from the goal */
    for (int i = 0; i < STEPS; i++) CHECK(step(&program, rank));
    for (int i = 0; i < ELEMENTS; i++) EXPECT(fabs(program.weight[i] - (mean + left * (i - mean))) < 1e-4);
    for (int i = 0; i < COLUMNS; i++) EXPECT(fabs(program.bias[i] - (mean - left * mean)) < 1e-4);
    end(&program);
    CHECK(accel_free_memory(state)); /* the memory is of this block */
  }
}

/* Rank 1 dies between two steps; the argument is 1 for sharded states. */
void run_registered_kill(accel_state_t* state, const char* argument) {
  const int rank = accel_process_index(state);
  program_t program;
  accel_status_t status = ACCEL_OK;
  int64_t start = 0;
  EXPECT(argument != NULL);
  begin(&program, state, strcmp(argument, "1") == 0);
  for (int i = 0; status == ACCEL_OK; i++) {
    EXPECT(i <= STEPS);
    if (i == STEPS && rank == 1) raise(SIGKILL);
    start = now_ms();
    status = step(&program, rank);
  }
  EXPECT(status == ACCEL_ERROR_PEER_LOST);
  EXPECT(now_ms() - start < 2000);
  end(&program);
  CHECK(accel_free_memory(state));
}
