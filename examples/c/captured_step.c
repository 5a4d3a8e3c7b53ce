/* A step that the device records after three ordinary ones, and then does by one call; on the CPU each is an ordinary
 * one:
 * ./captured_step 20 */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

enum { ROWS = 32, FEATURES = 8 };

struct training {
  accel_state_t *state;
  accel_module_t *model;
  accel_optimizer_t *optimizer;
};

/* The forward of the module `step`: the inputs and the targets of a batch, and the loss. */
static accel_status_t take_step(accel_module_t *step, const accel_value_t *inputs, size_t n_inputs,
                                accel_value_t *out_output, void *user_data) {
  const struct training *const training = user_data;
  accel_value_t output = ACCEL_VALUE_INIT;
  accel_tensor_t *loss = NULL;
  (void)step, (void)n_inputs;
  accel_status_t status = accel_optimizer_zero_grad(training->optimizer, 1);
  if (status >= 0) status = accel_module_call(training->model, inputs, 1, &output);
  if (status >= 0) status = accel_mse_loss(output.as.tensor, inputs[1].as.tensor, &loss);
  if (status >= 0) status = accel_backward(training->state, loss, NULL);
  if (status >= 0) status = accel_clip_grad_norm(training->state, training->model, 1, 2, NULL);
  if (status >= 0) status = accel_optimizer_step(training->optimizer);
  accel_value_dispose(&output);
  if (status >= 0)
    *out_output = accel_arg_tensor(loss); /* with its owner */
  else
    accel_tensor_release(loss);
  return status;
}

/* Numbers that look random: the targets are the sums of the rows. */
static void make_batch(uint32_t seed, float *inputs, float *targets) {
  for (int row = 0; row < ROWS; row++) {
    targets[row] = 0;
    for (int i = 0; i < FEATURES; i++) {
      seed = seed * 1664525u + 1013904223u;
      inputs[row * FEATURES + i] = (float)(seed >> 16) / 32768.0f - 1;
      targets[row] += inputs[row * FEATURES + i];
    }
  }
}

int main(int argc, char **argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 20;
  const int64_t input_shape[] = {ROWS, FEATURES}, target_shape[] = {ROWS, 1};
  struct training training = {NULL, NULL, NULL};
  accel_module_t *model = NULL, *step = NULL, *captured = NULL;
  accel_optimizer_t *optimizer = NULL;
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  CHECK(accel_state_create(NULL, &training.state));
  CHECK(accel_set_seed(training.state, 0, 0, 0));
  CHECK(accel_module_linear(FEATURES, 1, 1, &model));
  CHECK(accel_prepare_model(training.state, model, NULL, &training.model));
  adam.lr = 0.05;
  CHECK(accel_optimizer_adamw(training.model, &adam, &optimizer));
  CHECK(accel_prepare_optimizer(training.state, optimizer, &training.optimizer));
  CHECK(accel_module_create("Step", &step));
  CHECK(accel_module_set_forward(step, take_step, &training, NULL));
  CHECK(accel_step_capture(training.state, step, NULL, &captured));
  for (int i = 0; i < steps; i++) {
    float inputs[ROWS * FEATURES], targets[ROWS];
    accel_tensor_t *input = NULL, *target = NULL;
    accel_value_t loss = ACCEL_VALUE_INIT;
    make_batch((uint32_t)i, inputs, targets);
    CHECK(accel_tensor_from_data(inputs, input_shape, 2, ACCEL_DTYPE_FLOAT32, &input));
    CHECK(accel_tensor_from_data(targets, target_shape, 2, ACCEL_DTYPE_FLOAT32, &target));
    const accel_value_t batch[] = {accel_arg_tensor(input), accel_arg_tensor(target)};
    CHECK(accel_module_call(captured, batch, 2, &loss));
    if ((i + 1) % 10 == 0) {
      double number = 0;
      CHECK(accel_tensor_item(loss.as.tensor, &number));
      printf("step %d: loss %.4f\n", i + 1, number);
    }
    accel_value_dispose(&loss);
    accel_tensor_release(target);
    accel_tensor_release(input);
  }
  int64_t replays = 0;
  CHECK(accel_step_capture_counts(captured, NULL, NULL, &replays));
  printf("steps that a recording did: %d\n", (int)replays);
  accel_module_release(captured);
  accel_module_release(step);
  accel_optimizer_release(training.optimizer);
  accel_optimizer_release(optimizer);
  accel_module_release(training.model);
  accel_module_release(model);
  accel_state_release(training.state);
  return 0;
}
