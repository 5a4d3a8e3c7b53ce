/* Trains a network whose gradients are computed by hand, in memory of the program: LibTorch's autograd has no part in
 * it. So does a framework with an autograd of its own.
 *
 *     accel launch --num-processes 2 -- ./own_gradients
 *
 * Two layers learn (sin(3 x), x y) from (x, y). The processes share each batch, so the losses do not depend on their
 * number.
 */
#include <accel.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 2, HIDDEN = 24, OUTPUTS = 2, BATCH = 48, STEPS = 600 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

struct network {
  float hidden_weight[HIDDEN][INPUTS], hidden_bias[HIDDEN], output_weight[OUTPUTS][HIDDEN], output_bias[OUTPUTS];
};

/* The same numbers in [-1, 1] in every process. */
static float noise(unsigned number) {
  number = number * 2654435769u + 12345u;
  number = (number ^ (number >> 15)) * 2246822519u;
  return (float)((number >> 8) & 0xffff) / 32767.5f - 1.0f;
}

/* Adds the gradient of the mean squared error of one sample, of which the batch has `count`; returns that error. */
static float learn(const struct network *network, const float x[INPUTS], int count, struct network *gradient) {
  const float goal[OUTPUTS] = {sinf(3 * x[0]), x[0] * x[1]};
  float hidden[HIDDEN], down[HIDDEN] = {0}, loss = 0;
  for (int h = 0; h < HIDDEN; h++)
    hidden[h] =
        tanhf(network->hidden_weight[h][0] * x[0] + network->hidden_weight[h][1] * x[1] + network->hidden_bias[h]);
  for (int o = 0; o < OUTPUTS; o++) {
    float y = network->output_bias[o];
    for (int h = 0; h < HIDDEN; h++) y += network->output_weight[o][h] * hidden[h];
    const float error = 2 * (y - goal[o]) / (float)(OUTPUTS * count);
    loss += (y - goal[o]) * (y - goal[o]) / (float)(OUTPUTS * count);
    gradient->output_bias[o] += error;
    for (int h = 0; h < HIDDEN; h++) {
      gradient->output_weight[o][h] += error * hidden[h];
      down[h] += error * network->output_weight[o][h];
    }
  }
  for (int h = 0; h < HIDDEN; h++) {
    const float inside = down[h] * (1 - hidden[h] * hidden[h]);
    gradient->hidden_bias[h] += inside;
    for (int i = 0; i < INPUTS; i++) gradient->hidden_weight[h][i] += inside * x[i];
  }
  return loss;
}

/* Gives memory of the program a name in a map; 0 columns: it is a vector. */
static void put(accel_value_t *map, const char *name, float *data, int64_t rows, int64_t columns) {
  const int64_t shape[2] = {rows, columns};
  accel_tensor_t *tensor = NULL;
  CHECK(accel_tensor_from_blob(data, shape, columns == 0 ? 1 : 2, NULL, ACCEL_DTYPE_FLOAT32,
                               &(accel_device_t){ACCEL_DEVICE_CPU, -1}, NULL, NULL, &tensor));
  const accel_value_t item = accel_arg_tensor(tensor);
  CHECK(accel_value_set(map, name, &item));
  accel_tensor_release(tensor);
}

/* The parameters by their names, or gradients by the names of their parameters. */
static accel_value_t tensors_over(struct network *network) {
  accel_value_t map = ACCEL_VALUE_INIT;
  CHECK(accel_value_map(&map));
  put(&map, "hidden.weight", network->hidden_weight[0], HIDDEN, INPUTS);
  put(&map, "hidden.bias", network->hidden_bias, HIDDEN, 0);
  put(&map, "output.weight", network->output_weight[0], OUTPUTS, HIDDEN);
  put(&map, "output.bias", network->output_bias, OUTPUTS, 0);
  return map;
}

int main(void) {
  struct network network, gradient;
  memset(&network, 0, sizeof network);
  for (int h = 0; h < HIDDEN; h++) {
    for (int i = 0; i < INPUTS; i++) network.hidden_weight[h][i] = 2 * noise((unsigned)(h * INPUTS + i));
    for (int o = 0; o < OUTPUTS; o++) network.output_weight[o][h] = 0.2f * noise((unsigned)(o * HIDDEN + h) + 100);
    network.hidden_bias[h] = noise((unsigned)h + 200);
  }

  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  accel_value_t tensors = tensors_over(&network), gradients = tensors_over(&gradient);
  accel_parameters_t *parameters = NULL;
  CHECK(accel_parameters_register(state, &tensors, NULL, &parameters));
  accel_module_t *module = NULL;
  CHECK(accel_parameters_module(parameters, &module));
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = 0.01;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  CHECK(accel_optimizer_adam(module, &adam, &plain));
  CHECK(accel_prepare_optimizer(state, plain, &optimizer));
  accel_parameters_step_options_t clipping = ACCEL_PARAMETERS_STEP_OPTIONS_INIT;
  clipping.max_grad_norm = 1.0;

  /* A batch is shared by the processes, and by the micro-batches that accumulate. */
  const int processes = accel_num_processes(state), rank = accel_process_index(state);
  const int micro_batches = (int)accel_gradient_accumulation_steps(state);
  const int parts = processes * micro_batches;
  for (int step = 0; step < STEPS; step++) {
    float loss = 0;
    for (int micro = 0; micro < micro_batches; micro++) {
      memset(&gradient, 0, sizeof gradient);
      const int mine = micro * processes + rank;
      for (int i = BATCH * mine / parts; i < BATCH * (mine + 1) / parts; i++) {
        const unsigned sample = (unsigned)(step * BATCH + i);
        const float x[INPUTS] = {noise(sample + 1000), noise(sample + 900000)};
        loss += learn(&network, x, BATCH / parts, &gradient);
      }
      /* Averages over the processes, clips, and leaves the updated weights in `network`. */
      CHECK(accel_parameters_step(parameters, optimizer, &gradients, &clipping, NULL));
    }
    if ((step + 1) % 100 != 0) continue;
    const int64_t one = 1;
    accel_tensor_t *mean = NULL;
    CHECK(accel_tensor_from_blob(&loss, &one, 1, NULL, ACCEL_DTYPE_FLOAT32, &(accel_device_t){ACCEL_DEVICE_CPU, -1},
                                 NULL, NULL, &mean));
    CHECK(accel_all_reduce(state, mean, ACCEL_REDUCE_MEAN));
    accel_tensor_release(mean);
    if (rank == 0) printf("step %d  loss %.5f\n", step + 1, (double)(loss / (float)micro_batches));
  }

  accel_value_dispose(&tensors);
  accel_value_dispose(&gradients);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(module);
  accel_parameters_release(parameters);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
