/* Trains a network whose gradients are computed by hand, in memory of the program: LibTorch's autograd has no part in
 * it. So does a framework with an autograd of its own.
 *
 *     accel launch --num-processes 2 -- ./own_gradients
 *
 * A layer of tanh learns sin(3 x). The processes share each batch, so the losses do not depend on their number.
 */
#include <accel.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 24, BATCH = 48, STEPS = 600 };
enum { WEIGHT, BIAS, OUTPUT, OUTPUT_BIAS, PARAMETERS };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

struct network {
  float weight[HIDDEN], bias[HIDDEN], output[HIDDEN], output_bias[1];
};

/* The same numbers in [-1, 1] in every process. */
static float noise(unsigned number) {
  number = number * 2654435769u + 12345u;
  number = (number ^ (number >> 15)) * 2246822519u;
  return (float)((number >> 8) & 0xffff) / 32767.5f - 1.0f;
}

/* Adds the gradient of the mean squared error of one sample, of which the batch has `count`; returns that error. */
static float learn(const struct network *network, float x, int count, struct network *gradient) {
  float hidden[HIDDEN], y = network->output_bias[0];
  for (int i = 0; i < HIDDEN; i++) {
    hidden[i] = tanhf(network->weight[i] * x + network->bias[i]);
    y += network->output[i] * hidden[i];
  }
  const float difference = y - sinf(3 * x);
  const float down = 2 * difference / (float)count;
  gradient->output_bias[0] += down;
  for (int i = 0; i < HIDDEN; i++) {
    const float inside = down * network->output[i] * (1 - hidden[i] * hidden[i]);
    gradient->output[i] += down * hidden[i];
    gradient->weight[i] += inside * x;
    gradient->bias[i] += inside;
  }
  return difference * difference / (float)count;
}

/* A tensor over memory of the program. */
static accel_tensor_t *tensor_over(float *data, int64_t length) {
  accel_tensor_t *tensor = NULL;
  CHECK(accel_tensor_from_blob(data, &length, 1, NULL, ACCEL_DTYPE_FLOAT32, (accel_device_t){ACCEL_DEVICE_CPU, -1},
                               NULL, NULL, &tensor));
  return tensor;
}

int main(void) {
  static const char *const names[PARAMETERS] = {"weight", "bias", "output", "output_bias"};
  static const int lengths[PARAMETERS] = {HIDDEN, HIDDEN, HIDDEN, 1};
  struct network network = {.output_bias = {0}};
  float *const values[PARAMETERS] = {network.weight, network.bias, network.output, network.output_bias};
  for (int i = 0; i < HIDDEN; i++) {
    network.weight[i] = 3 * noise((unsigned)i);
    network.bias[i] = noise((unsigned)i + 100);
    network.output[i] = 0.2f * noise((unsigned)i + 200);
  }

  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  accel_module_t *module = NULL;
  CHECK(accel_module_create("OwnNetwork", &module));
  for (int p = 0; p < PARAMETERS; p++) {
    accel_tensor_t *const tensor = tensor_over(values[p], lengths[p]);
    CHECK(accel_module_add_parameter(module, names[p], tensor, 1));
    accel_tensor_release(tensor);
  }
  accel_parameters_t *parameters = NULL;
  CHECK(accel_parameters_create(state, module, NULL, &parameters));
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = 0.01;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  CHECK(accel_optimizer_adam(module, &adam, &plain));
  CHECK(accel_prepare_optimizer(state, plain, &optimizer));

  /* A batch is shared by the processes, and by the micro-batches that accumulate. */
  const int processes = accel_num_processes(state), rank = accel_process_index(state);
  const int micro_batches = (int)accel_gradient_accumulation_steps(state);
  float loss = 0;
  for (int step = 0; step < STEPS; step++) {
    loss = 0;
    for (int micro = 0; micro < micro_batches; micro++) {
      accel_scope_t *scope = NULL;
      CHECK(accel_accumulate_begin(state, NULL, 0, &scope));
      struct network gradient;
      memset(&gradient, 0, sizeof gradient);
      const int mine = micro * processes + rank, parts = processes * micro_batches;
      for (int i = BATCH * mine / parts; i < BATCH * (mine + 1) / parts; i++)
        loss += learn(&network, noise((unsigned)(step * BATCH + i) + 1000), BATCH / parts, &gradient);
      /* The exchange of each gradient starts as soon as it is complete; with layers above each other, the last ones
       * first. */
      float *const gradients[PARAMETERS] = {gradient.weight, gradient.bias, gradient.output, gradient.output_bias};
      for (int p = PARAMETERS; p-- > 0;) {
        accel_tensor_t *const ready = tensor_over(gradients[p], lengths[p]);
        CHECK(accel_parameters_grad_ready(parameters, (size_t)p, ready));
        accel_tensor_release(ready);
      }
      CHECK(accel_parameters_synchronize(parameters));
      CHECK(accel_clip_grad_norm(state, module, 1.0, 2.0, NULL));
      CHECK(accel_optimizer_step(optimizer));
      CHECK(accel_scope_end(scope));
    }
    accel_tensor_t *const mean = tensor_over(&loss, 1);
    CHECK(accel_all_reduce(state, mean, ACCEL_REDUCE_MEAN));
    accel_tensor_release(mean);
    if ((step + 1) % 100 == 0 && rank == 0)
      printf("step %d  loss %.5f\n", step + 1, (double)(loss / (float)micro_batches));
  }

  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_parameters_release(parameters);
  accel_module_release(module);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
